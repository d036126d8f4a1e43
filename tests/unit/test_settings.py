"""Settings from the environment, and the sentence that each wrong one earns."""

from __future__ import annotations

import pytest

from monitor.settings import SettingsError, load

TOKEN = "0123456789abcdef"


def test_defaults_stay_on_this_machine() -> None:
    settings = load()
    assert settings.host == "127.0.0.1"
    assert settings.token is None
    assert settings.url == "http://127.0.0.1:8900"


def test_the_environment_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VITALS_SLACK_WEBHOOK_URL", "https://hooks.example/T/B/x")
    monkeypatch.setenv("VITALS_PORT", "9000")
    monkeypatch.setenv("VITALS_TOKEN", "")
    settings = load(port=None)
    assert settings.port == 9000
    assert settings.token is None
    assert settings.slack_webhook_url is not None
    assert "hooks.example" not in repr(settings)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.5", "gpu-7"])
def test_the_network_needs_a_token(host: str) -> None:
    with pytest.raises(SettingsError, match=f"(?i)listening on {host}.*VITALS_TOKEN"):
        load(host=host)
    assert load(host=host, token=TOKEN).host == host


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "::1", "localhost"])
def test_loopback_needs_none(host: str) -> None:
    assert load(host=host).host == host


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"port": "x"}, "VITALS_PORT"),
        ({"port": 70000}, "VITALS_PORT"),
        ({"role": "boss"}, "VITALS_ROLE"),
        ({"token": "short"}, "VITALS_TOKEN"),
        ({"public_url": "ftp://x"}, "VITALS_PUBLIC_URL"),
    ],
)
def test_a_wrong_setting_is_named(wrong: dict[str, object], named: str) -> None:
    with pytest.raises(SettingsError, match=named) as caught:
        load(**wrong)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("given", "url"),
    [
        ({"host": "0.0.0.0", "token": TOKEN}, "http://127.0.0.1:8900"),
        ({"host": "::1"}, "http://[::1]:8900"),
        ({"public_url": "https://vitals.example/"}, "https://vitals.example"),
    ],
)
def test_the_address_people_open(given: dict[str, object], url: str) -> None:
    assert load(**given).url == url
