"""What every page is held to: whole at three widths, and accessible."""

from __future__ import annotations

from typing import Any


def assert_whole(page: Any) -> None:
    """One title, live, and nothing sticks out at any width. The page stays at the narrowest."""
    assert page.get_attribute("html", "lang") == "en"
    assert page.locator("h1").count() == 1
    assert page.title().endswith("rlvitals")
    page.wait_for_function("document.getElementById('live').textContent === 'live'")
    for width in (1920, 1280, 390):
        page.set_viewport_size({"width": width, "height": 900})
        page.wait_for_timeout(120)
        assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0, width


def assert_accessible(page: Any) -> None:
    """No serious or critical violation."""
    from axe_playwright_python.sync_playwright import Axe

    page.wait_for_timeout(400)
    found = Axe().run(page, options={"resultTypes": ["violations"]}).response["violations"]
    serious = [(each["id"], [node["html"][:160] for node in each["nodes"][:4]]) for each in found if each["impact"] in ("serious", "critical")]
    assert serious == []
