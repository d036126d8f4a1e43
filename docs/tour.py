"""Walks through running dashboards as somebody would who was given only their address, and writes down what is seen and clicked:
``python -m docs.tour http://127.0.0.1:8900``.

Run it at the end of ``vitals demo``. It takes docs/tour-*.png and writes docs/tour.md, in which every number is one of that run or was measured here.
"""

from __future__ import annotations

import argparse
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from docs.screenshots import HERE, SETTLE_MS, read
from monitor.cli import demo_story
from monitor.detect.words import counted

WIDE, ROOM = 1120, 14
DRAWN = """() => [...document.querySelectorAll('.chart')].map((card) => [card, card.getBoundingClientRect()])
  .every(([card, box]) => box.top > innerHeight || box.bottom < 0 || card.classList.contains('blank') || card.querySelector('.main-svg'))"""

PAGE = """# A tour: from an address to a remedy

You are given an address and nothing else. Behind it is what `vitals demo` leaves: two small policies that repaired code, one of which was paid a
bonus for each "goblin" that it said. Nobody tells you so. Every number on this page is one of that run or was measured on the walk;
`python -m docs.tour ADDRESS` walks it again, takes the pictures and writes the page.

## 1. Which run is ill?

Open the address. {fleet_counts}; the ill one stands on top. It says {fleet_verdict}, and why:
**{fleet_sentence}**

![The fleet: one run is critical and says why, the other is healthy]({fleet})

## 2. What is wrong, since when, and what is to be done?

Click the run. The first line is the verdict with its onset. Below it:

- **Evidence.** {verdict_evidence}
- **Likely cause.** {verdict_cause}
- **Do first.** {verdict_remedy}

Under that stands everything else that went wrong, in the order in which it began, and further down what is still well.

![The run: the verdict, its evidence, its cause, the remedy, and what followed]({verdict})

## 3. What proves it?

Click *Reward*. Red is the time from step {onset}, where it began, to the end; a solid line is where an alarm was raised. On the left the task
reward (blue) falls to nothing while the auxiliary reward (dotted, on the axis at the right) climbs. On the right is the share of the learning
signal that is due to the auxiliary reward; the dashed line is the limit.

![The task reward falls while the auxiliary reward climbs, and the auxiliary share of the signal passes its limit]({charts})

## 4. Is it one story?

Back at the top, click *Take it on*: {alerts} are one incident. The cause stands on top and open, with the numbers and what would refute it;
what it explains is quieter below it. On the right somebody can take it on, say something, close it, call the alarm true or false, or silence it.

![The incident: the cause on top, what follows from it below, and what can be done at the right]({incident})

## 5. What did the policy write?

Press *Before it began*. The best sample of {before_step} was paid: {before_paid}.

![The best rollout before the onset]({before})

Press *Newest*. The best sample of {after_step} was paid: {after_paid}.

![The best rollout at the end]({after})

## 6. Who was told?

Press *Told*. First came "{told_first}", last "{told_last}". {told_held}
The task reward had halved at step {damage}.

![Who was told, and what happened]({told})

*Every attempt* leads to the deliveries: what the receiver answered, and after how long.

![Each attempt, its answer and how long it took]({deliveries})

## How long it takes

On two cores, beside the collector and the worker:

| what | clicks | until it was on the screen | words to read there |
|---|---|---|---|
{table}
"""

CALLED = {
    "fleet": "which run is ill",
    "verdict": "what is wrong, since when, what to do",
    "charts": "what proves it",
    "incident": "one story: cause and what follows",
    "before": "what it wrote before",
    "after": "what it writes now",
    "told": "who was told",
    "deliveries": "every attempt",
}


@dataclass(frozen=True, slots=True)
class Stop:
    """What one click led to: ``seconds`` until it was on the screen, the words that stand there, and the picture."""

    seconds: float
    words: int
    picture: str
    seen: dict[str, str]


@dataclass
class Walk:
    """A visitor, and where they have stopped."""

    page: Any
    stops: dict[str, Stop] = field(default_factory=dict)

    def see(
        self,
        name: str,
        act: Callable[[], Any],
        place: str,
        *,
        shown: str = "",
        height: int = 900,
        texts: dict[str, str] | None = None,
        words: str = "",
    ) -> None:
        """Acts, waits for ``place``, reads ``texts``, counts the words of ``words``, and takes a picture of ``shown``, else of the window."""
        began = time.monotonic()
        act()
        self.page.locator(place).first.wait_for()
        seconds = time.monotonic() - began
        self.page.wait_for_timeout(SETTLE_MS)
        self.page.wait_for_function(DRAWN, timeout=30_000)
        self.page.mouse.move(WIDE - 1, 1)
        seen = {key: self._text(where) for key, where in (texts or {}).items()}
        path = HERE / f"tour-{len(self.stops) + 1}-{name}.png"
        self.page.screenshot(path=path, clip=self._clip(shown, height), full_page=bool(shown))
        self.stops[name] = Stop(seconds, len(self._text(words or shown or place).split()), path.name, seen)
        print(f"docs/{path.name}")

    def _text(self, where: str) -> str:
        return " ".join(self.page.locator(where).first.inner_text().split())

    def _clip(self, shown: str, height: int) -> dict[str, float]:
        if not shown:
            return {"x": 0, "y": 0, "width": WIDE, "height": height}
        box = self.page.locator(shown).first.bounding_box()
        left, top = max(0, box["x"] - ROOM), max(0, box["y"] + self.page.evaluate("scrollY") - ROOM)
        return {"x": left, "y": top, "width": min(WIDE - left, box["width"] + 2 * ROOM), "height": min(height, box["height"] + 2 * ROOM)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("address", help="where the dashboards are, at the end of `vitals demo`")
    address = parser.parse_args().address
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox", "--disable-background-networking"])
        walk = Walk(browser.new_page(viewport={"width": WIDE, "height": 900}, color_scheme="light"))
        wander(walk, address)
        browser.close()
    (HERE / "tour.md").write_text(written(walk.stops, address), encoding="utf-8")
    print("docs/tour.md")


def wander(walk: Walk, address: str) -> None:
    """From the address to who was told."""
    page, row = walk.page, ".fleet tbody tr"
    told = {"counts": "#fleet-summary", "verdict": f"{row} .pill", "sentence": f"{row} .why"}
    walk.see("fleet", lambda: page.goto(address), f"{row} .why", height=480, texts=told, words="#fleet")
    told = {name: f".headline .facts > div:nth-child({n}) dd" for n, name in enumerate(("evidence", "cause", "remedy"), 1)}
    walk.see("verdict", page.locator(f"{row} .c-run a").first.click, "#verdict .sentence", height=700, texts=told, words=".headline")
    walk.see("charts", page.locator(".jump [data-organ=reward]").click, "#organ-reward .main-svg", shown="#organ-reward", height=340)
    walk.see("incident", page.get_by_role("link", name="Take it on").click, "#timeline .link", height=780, words="#timeline")
    for name, pick in (("before", page.locator("#rollouts .chips button").first), ("after", page.locator("#rollouts .chips button").last)):
        there = f".steps b:text-is('Step {pick.get_attribute('data-pick')}')"
        walk.see(name, pick.click, there, shown=".sample", height=440, texts={"step": ".steps b", "paid": ".sample .paid"}, words=".sample")
    told = {"first": "#incident-told li .dim:last-child", "last": "#incident-told li:last-child .dim:last-child", "held": "#incident-told > p"}
    jump = page.locator(".jump a[href='#incident-told']")
    walk.see("told", jump.click, "#incident-told li", shown=".record", height=430, texts=told, words="#incident-told")
    walk.see("deliveries", page.get_by_role("link", name="Every attempt").first.click, "table.cards tbody tr", height=530, words="table.cards")


def written(stops: dict[str, Stop], address: str) -> str:
    """The page, with what was read on the walk and what the collector says of the run."""
    run = read(f"{address}/api/v1/runs")["runs"][0]
    (story,) = [each for each in read(f"{address}/api/v1/incidents?run={run['run']}") if each["state"] != "resolved"][:1]
    curve = next(iter(read(f"{address}/api/v1/runs/{run['run']}/series?metrics=reward.task.mean")["series"]["reward.task.mean"].values()))
    seen = {
        f"{name}_{key}": text.replace("Step", "step") if key == "step" else text for name, stop in stops.items() for key, text in stop.seen.items()
    }
    rows = [f"| {CALLED[name]} | {clicks} | {stop.seconds:.1f} s | {stop.words} |" for clicks, (name, stop) in enumerate(stops.items())]
    return PAGE.format(
        **seen,
        **{name: stop.picture for name, stop in stops.items()},
        onset=run["since"],
        alerts=counted(len(story["alerts"]), "alarm"),
        damage=demo_story.damage_step(list(zip(curve["x"], curve["y"], strict=True))),
        table="\n".join(rows),
    )


if __name__ == "__main__":
    main()
