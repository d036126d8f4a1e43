"""What every page is held to: whole at three widths, and accessible."""

from __future__ import annotations

from typing import Any

_WIDE = """() => [...document.querySelectorAll('body *')].filter((node) => node.getBoundingClientRect().right > innerWidth + 1)
  .slice(-3).map((node) => node.outerHTML.slice(0, 120))"""


def assert_whole(page: Any) -> None:
    """One title, live, and nothing sticks out at any width once charts have followed. The page stays at the narrowest."""
    from playwright.sync_api import TimeoutError as TooLong

    assert page.get_attribute("html", "lang") == "en"
    assert page.locator("h1").count() == 1
    assert page.title().endswith("rlvitals")
    page.wait_for_function("document.getElementById('live').textContent === 'live'")
    for width in (1920, 1280, 390):
        page.set_viewport_size({"width": width, "height": 900})
        page.wait_for_timeout(120)
        try:
            page.wait_for_function("document.documentElement.scrollWidth <= innerWidth", timeout=5000)
        except TooLong:
            raise AssertionError(f"at {width}: {page.evaluate(_WIDE)}") from None


def assert_accessible(page: Any) -> None:
    """No serious or critical violation."""
    from axe_playwright_python.sync_playwright import Axe

    page.wait_for_timeout(400)
    found = Axe().run(page, options={"resultTypes": ["violations"]}).response["violations"]
    serious = [(each["id"], [node["html"][:160] for node in each["nodes"][:4]]) for each in found if each["impact"] in ("serious", "critical")]
    assert not serious, serious
