"""What an answer of a receiver means, which targets are refused, and when to try again."""

from __future__ import annotations

import base64
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitor.deliver.channel import ChannelError, MessageRefused, TransportError
from monitor.deliver.post import Poster, public_address, refused, retry_after
from monitor.deliver.retry import Policy
from monitor.deliver.slack import Slack
from monitor.deliver.webhook import Webhook

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("raw", "seconds"),
    [
        ("30", 30.0),
        (" 7 ", 7.0),
        ("Sun, 01 Mar 2026 12:01:30 GMT", 90.0),
        ("Sun, 01 Mar 2026 11:00:00 GMT", 0.0),
        ("99999999", 99999999.0),
        ("-5", None),
        ("soon", None),
        ("", None),
    ],
)
def test_retry_after(raw, seconds):
    assert retry_after({"retry-after": raw}, NOW) == seconds


@pytest.mark.parametrize("status", [500, 502, 503, 504, 408, 425, 429])
def test_these_pass(status):
    error = refused("host", status, {"retry-after": "30"})
    assert not error.permanent and error.retry_after == 30 and error.status == status


@pytest.mark.parametrize("status", [301, 302, 307, 308, 401, 403, 404, 405, 410])
def test_these_need_somebody(status):
    error = refused("host", status, {})
    assert error.permanent and not isinstance(error, MessageRefused)


@pytest.mark.parametrize("status", [400, 413, 422])
def test_these_refuse_the_message_and_not_the_channel(status):
    assert isinstance(refused("host", status, {}, "invalid_blocks"), MessageRefused)
    assert "invalid_blocks" in str(refused("host", status, {}, "invalid_blocks"))


@pytest.mark.parametrize("host", ["127.0.0.1", "10.1.2.3", "192.168.0.9", "169.254.169.254", "::1", "fd00::1", "100.64.0.1", "0.0.0.0", "localhost"])
async def test_private_targets_are_refused(host):
    with pytest.raises(TransportError, match="VITALS_ALLOW_PRIVATE_WEBHOOKS") as caught:
        await public_address(host, 443)
    assert caught.value.permanent


async def test_a_refused_target_is_never_connected(monkeypatch):
    monkeypatch.setenv("NO_PROXY", "*")
    with pytest.raises(TransportError, match="private address"):
        await Poster("http://127.1:9/x").post(b"{}", {})  # another spelling of 127.0.0.1


@pytest.mark.parametrize("host", ["127.0.0.1", "10.1.2.3", "[::1]", "localhost", "me.localhost"])
def test_a_plainly_private_target_is_said_when_the_channel_is_made(monkeypatch, host):
    monkeypatch.setenv("NO_PROXY", "*")
    with pytest.raises(ChannelError, match="VITALS_ALLOW_PRIVATE_WEBHOOKS"):
        Slack("slack", f"http://{host}/x")
    Slack("slack", f"http://{host}/x", private=True)


@pytest.mark.parametrize("url", ["", "ftp://host/x", "host/path", "https://", "http://host:port/x"])
def test_wrong_addresses_are_said(url):
    with pytest.raises(ChannelError, match="address"):
        Slack("slack", url)


def test_a_wrong_secret_is_said_without_repeating_it():
    with pytest.raises(ChannelError, match="base64") as caught:
        Webhook("w", "https://example.org/x", "whsec_not*base64*at*all*")
    assert "not*base64" not in str(caught.value)
    with pytest.raises(ChannelError, match="base64"):
        Webhook("w", "https://example.org/x", "")


@pytest.mark.parametrize("size", [1, 2, 23, 65])
def test_a_secret_of_another_length_is_said_with_how_to_make_one(size):
    secret = base64.b64encode(bytes(range(size))).decode()
    with pytest.raises(ChannelError, match=f"base64 of 24 to 64 bytes, and this is {size} bytes; `echo whsec_") as caught:
        Webhook("w", "https://example.org/x", secret)
    assert secret not in str(caught.value)


@pytest.mark.parametrize("size", [24, 32, 64])
def test_a_secret_as_the_standard_wants_it_is_taken(size):
    secret = base64.b64encode(bytes(size)).decode()
    assert "signed" in Webhook("w", "https://example.org/x", secret).about
    assert Webhook("w", "https://example.org/x", f"whsec_{secret.rstrip('=')}").about.endswith(", signed")


def test_secrets_do_not_show():
    for channel in (
        Slack("s", "https://hooks.slack.com/services/T/B/SECRET"),
        Webhook("w", "https://host/SECRET?token=SECRET", "whsec_" + "U0VDUkVU" * 4),
    ):
        assert "SECRET" not in repr(channel) and "U0VDUkVU" not in repr(channel)


@given(st.integers(1, 10_000), st.floats(0, 1, exclude_max=True))
def test_waits_grow_to_a_cap_and_half_of_each_is_dice(attempt, dice):
    policy = Policy(base_s=1, cap_s=300)
    whole, passing = min(300, 2.0 ** min(attempt - 1, 60)), TransportError("503")
    assert whole / 2 <= policy.wait(attempt, passing, dice) < whole or whole == policy.wait(attempt, passing, dice)
    assert policy.wait(attempt, passing, dice) <= policy.wait(attempt + 1, passing, dice)


def test_a_channel_rests_after_repeated_failures_and_as_long_as_asked():
    policy, passing = Policy(trip=3, rest_s=5, rest_cap_s=600, disabled_s=900), TransportError("503")
    assert [policy.rest(n, passing) for n in (1, 2, 3, 4, 5, 99)] == [0, 0, 5, 10, 20, 600]
    slow = TransportError("429", retry_after=30)
    assert policy.rest(1, slow) == policy.wait(1, slow, 0.5) == 30
    never = TransportError("429", retry_after=float("inf"))
    assert policy.rest(1, never) == policy.wait(1, never, 0.5) == policy.asked_cap_s
    assert policy.rest(1, TransportError("404", permanent=True)) == 900
