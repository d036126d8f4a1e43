"""Takes the screenshots of this folder from running dashboards: ``python -m docs.screenshots http://127.0.0.1:8900``.

It shows the run that needs attention most, so run it at the end of ``vitals demo``.
"""

from __future__ import annotations

import argparse
import json
import shutil
import urllib.request
from pathlib import Path
from typing import Any
from urllib.parse import quote

HERE = Path(__file__).parent
SETTLE_MS = 2500


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("address", help="where the dashboards are, for instance those of `vitals demo`")
    arguments = parser.parse_args()
    from playwright.sync_api import sync_playwright

    listed = read(f"{arguments.address}/api/v1/runs")["runs"]
    runs = [run["run"] for run in listed]
    incidents = [incident["uid"] for incident in read(f"{arguments.address}/api/v1/incidents?run={runs[0]}")]
    shots = [("fleet", "/", 500), ("run", f"/run/{runs[0]}", 1500), ("alerts", "/alerts", 1100), ("deliveries", "/deliveries", 900)]
    shots += [("settings", "/settings", 1500), ("project", f"/project/{quote(listed[0]['project'], safe='')}", 900)]
    if len(runs) > 1:
        shots.append(("compare", f"/compare?runs={runs[1]},{runs[0]}", 1500))
    if incidents:
        shots.append(("incident", f"/incident/{incidents[0]}", 1900))
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox", "--disable-background-networking"])
        for theme in ("dark", "light"):
            for name, path, height in shots:
                take(browser, arguments.address + path, f"{name}-{theme}.png", theme, 1280, height)
        for name, path, _ in shots:
            take(browser, arguments.address + path, f"{name}-phone.png", "light", 390, 844)
        browser.close()


def read(url: str) -> Any:
    with urllib.request.urlopen(url) as answer:
        return json.load(answer)


def take(browser: Any, url: str, file: str, theme: str, width: int, height: int) -> None:
    """One picture of a page's first view, after its charts have been drawn."""
    page = browser.new_page(viewport={"width": width, "height": height}, color_scheme=theme)
    page.goto(url)
    page.wait_for_function("() => !document.querySelector('.plot') || document.querySelector('.plot path.js-line')", timeout=30_000)
    page.wait_for_timeout(SETTLE_MS)
    page.screenshot(path=HERE / file)
    page.close()
    print(f"docs/{file}")


if __name__ == "__main__":
    main()
