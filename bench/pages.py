"""How long the pages take to be drawn, next to Trackio and MLflow on the same machine, and what a page costs while it is open.

    python -m bench.pages                    # run, compare and fleet page; 50 open pages of 12 charts and 6 runs, and a browser's frames;
                                             # how long batches take while people open pages
    python -m bench.pages --peers            # also Trackio and MLflow, in an environment of their own, made on first use

Headless Chromium, a new page for each of ``--rounds`` visits, times from the start of the navigation, medians. ``drawn`` is when every chart asked
for holds a line: the first view (what is on a 1280 x 800 screen) and all twelve (a screen tall enough for them). Prints JSON lines.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
import venv
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median
from typing import Any

from bench.page_series import value
from bench.rig import Rig, rig
from monitor.cli.stack import free_port
from monitor.wire import Batch, Row, RunEnd, RunStart, to_json

PEERS = ("trackio==0.43.*", "mlflow==3.17.*")
CHARTS = 12
NAMES = [f"bench/metric_{m:02d}" for m in range(CHARTS)]
STEPS, PEER_STEPS = 1_000_000, 20_000
FLEET, FLEET_ROWS = 500, 100
COMPARED, COMPARED_STEPS = 10, 20_000
BATCH = 2000
TABS, LIVE_RUNS, LIVE_S = 50, 6, 30
WRITERS, WRITE_EVERY_S, LOOKERS, OPEN_EVERY_S, INGEST_S = 6, 0.25, 4, 2.0, 20
ARGUMENTS = ["--no-sandbox", "--disable-background-networking", "--disable-component-update", "--disable-sync", "--no-first-run"]

OURS = "(n) => [...document.querySelectorAll('.plot')].filter((p) => p.querySelector('path.js-line[d]')).length >= n && performance.now()"
VISIBLE = """() => { const seen = [...document.querySelectorAll('.plot')].filter((p) => { const r = p.getBoundingClientRect();
 return r.top < innerHeight && r.bottom > 0 && !p.closest('[hidden]') && r.height > 0; });
 return seen.length > 0 && seen.every((p) => p.querySelector('path.js-line[d]') || p.closest('.blank')) && performance.now(); }"""
ANY = """(n) => [...document.querySelectorAll('svg, canvas')].filter((c) => { const r = c.getBoundingClientRect();
 return r.width >= 150 && r.height >= 80 && (c.tagName === 'CANVAS' || [...c.querySelectorAll('path')].some((p) => (p.getAttribute('d') || '')
 .length > 200)); }).length >= n && performance.now()"""
FLEET_DRAWN = """(n) => document.querySelectorAll('.fleet tbody tr').length >= n
 && document.querySelector('.fleet svg path[d], .fleet svg polyline') && performance.now()"""


def post(url: str, message: Any) -> None:
    with urllib.request.urlopen(urllib.request.Request(url, to_json(message), {"Content-Type": "application/json"}), timeout=120) as answer:
        answer.read()


def send(found: Rig, run: str, steps: int, *, names: Sequence[str] = NAMES[:CHARTS], ended: bool = True) -> None:
    """A run with its whole history; its last rows are of now."""
    api, began = f"{found.url}/api/v1/runs", time.time() - steps
    post(api, RunStart(run, "a", "bench", run, began))
    for at in range(0, steps, BATCH):
        rows = [Row(step, began + step, {name: value(m, step) for m, name in enumerate(names)}) for step in range(at, min(steps, at + BATCH))]
        post(f"{api}/{run}/batches", Batch("a", at // BATCH + 1, rows))
    if ended:
        post(f"{api}/{run}/finish", RunEnd("a", "finished", time.time()))


def rolled_up(found: Rig) -> bool:
    """Whether the summaries that long curves are read from are complete."""
    behind = (
        "SELECT count(*) FROM run LEFT JOIN rollup_cursor ON rollup_cursor.run_id = run.id WHERE run.next_seq - 1 > coalesce(rollup_cursor.seq, 0)"
    )
    with ThreadPoolExecutor(1) as apart:  # the browser's driver has an event loop in this thread
        return not apart.submit(found.query, behind).result()[0][0]


class Visitor:
    """A Chromium that visits pages."""

    def __init__(self, browser: Any, rounds: int) -> None:
        self.browser, self.rounds = browser, rounds

    def drawn(self, address: str, condition: str, n: int | None = None, height: int = 800) -> float:
        """Median seconds until ``condition`` holds."""
        taken = []
        for _ in range(self.rounds):
            context = self.browser.new_context(viewport={"width": 1280, "height": height})
            page = context.new_page()
            page.goto(address, wait_until="commit")
            taken.append(page.wait_for_function(condition, arg=n, polling="raf", timeout=120_000).json_value() / 1000)
            context.close()
        return median(taken)


@contextlib.contextmanager
def visitor(rounds: int) -> Iterator[Visitor]:
    from playwright.sync_api import sync_playwright

    chromium = os.environ.get("VITALS_TEST_CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
    if not chromium:
        sys.exit("bench.pages needs Chromium: install the package chromium or set VITALS_TEST_CHROMIUM")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=ARGUMENTS)
        yield Visitor(browser, rounds)
        browser.close()


def tell(**line: Any) -> None:
    print(json.dumps({"bench": "pages", **line}), flush=True)


def progress(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def peer_python() -> Path:
    """The Python of the peers' environment below the user's cache folder, made on first use."""
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "rlvitals" / "page-peers"
    if not (base / "ready").exists():
        progress(f"making an environment for {', '.join(PEERS)} in {base}")
        venv.create(base, clear=True, with_pip=True)
        subprocess.run([base / "bin" / "python", "-m", "pip", "install", "--quiet", *PEERS], check=True, stderr=subprocess.DEVNULL)
        (base / "ready").touch()
    return base / "bin" / "python"


def peer(tool: str, steps: int, visit: Visitor) -> float:
    """Median seconds until twelve charts of ``tool`` are drawn."""
    python, port = peer_python(), free_port("127.0.0.1", 26_000)
    with tempfile.TemporaryDirectory() as folder:
        command = [str(python), str(Path(__file__).with_name("page_peer.py")), tool, folder, str(CHARTS), str(steps), str(port)]
        with Path(folder, "log").open("wb") as log:
            process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True, start_new_session=True)
        try:
            assert process.stdout is not None
            for line in process.stdout:
                if line.startswith("ready "):
                    break
            else:
                sys.exit(f"{tool} did not start: {Path(folder, 'log').read_text()[-500:]}")
            threading.Thread(target=process.stdout.read, daemon=True).start()
            address = f"http://127.0.0.1:{port}{line.removeprefix('ready ').strip()}"
            answered(address)
            return visit.drawn(address, ANY, CHARTS, height=6000)
        finally:
            os.killpg(process.pid, 9)
            process.wait()


def answered(address: str) -> None:
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError, http.client.HTTPException), urllib.request.urlopen(address, timeout=5):
            return
        time.sleep(0.2)
    sys.exit(f"nothing answered at {address}")


def live(found: Rig, visit: Visitor) -> None:
    """Fifty pages that poll as the browser's driver does, while six runs log a row a second; and one real page's frames."""
    import httpx

    runs = [f"live-{i}" for i in range(LIVE_RUNS)]
    for run in runs:
        send(found, run, 2000, ended=False)
    stop = threading.Event()

    def log() -> None:
        step = 2000
        while not stop.is_set():
            for run in runs:
                rows = [Row(step, time.time(), {name: value(m, step) for m, name in enumerate(NAMES[:CHARTS])})]
                post(f"{found.url}/api/v1/runs/{run}/batches", Batch("a", step, rows))
            step += 1
            stop.wait(1.0)

    logger = threading.Thread(target=log)
    logger.start()
    query = {"run": ",".join(runs), "metrics": ",".join(NAMES[:CHARTS]), "new": ""}
    quiet = _spent(found, 10.0)
    sizes: list[int] = []

    def tab(number: int) -> int:
        """Updates of one tab, every two seconds from a moment of its own; at every fifth it also asks for the pulse, as a page does."""
        updates, since = 0, ""
        with httpx.Client(base_url=found.url, headers={"Accept-Encoding": "gzip"}, timeout=60) as client:
            time.sleep(2.0 * number / TABS)
            end = time.monotonic() + LIVE_S
            while time.monotonic() < end:
                began = time.monotonic()
                answer = client.get("/api/v1/live", params={**query, "since": since})
                if since:
                    updates += 1
                    sizes.append(int(answer.num_bytes_downloaded))
                since = answer.json()["cursor"]
                if updates % 5 == 0:
                    client.get("/api/v1/pulse")
                time.sleep(max(0.0, 2.0 - (time.monotonic() - began)))
        return updates

    with ThreadPoolExecutor(TABS) as pool:
        before, began = found.cpu_seconds("pages"), time.monotonic()
        updates = sum(pool.map(tab, range(TABS)))
        spent, lasted = found.cpu_seconds("pages") - before, time.monotonic() - began
    own = max(0.0, spent - quiet * lasted)
    tell(
        case=f"{TABS} tabs, {CHARTS} charts, {LIVE_RUNS} runs",
        updates=updates,
        cpu_ms_per_update=round(1000 * own / max(updates, 1), 3),
        core=round(own / lasted, 4),
        bytes_per_update=round(median(sizes)),
    )
    frames(visit, f"{found.url}/compare?runs={','.join(runs)}")
    stop.set()
    logger.join()


def frames(visit: Visitor, address: str) -> None:
    """The longest time between two frames of an open page while it is updated."""
    page = visit.browser.new_page(viewport={"width": 1280, "height": 3000})
    page.goto(address, wait_until="commit")
    page.wait_for_function(OURS, arg=CHARTS, timeout=60_000)
    page.wait_for_timeout(3000)
    worst = page.evaluate(
        "() => new Promise((done) => { let last = performance.now(), worst = 0; const end = last + 20000;"
        "const frame = (now) => { worst = Math.max(worst, now - last); last = now; now < end ? requestAnimationFrame(frame) : done(worst); };"
        "requestAnimationFrame(frame); })"
    )
    tell(case="worst frame in 20 s of live updates", ms=round(worst, 1))


def _spent(found: Rig, seconds: float) -> float:
    """CPU seconds per second of the server that shows the pages, with nobody looking."""
    before = found.cpu_seconds("pages")
    time.sleep(seconds)
    return (found.cpu_seconds("pages") - before) / seconds


def run_page(found: Rig, visit: Visitor, steps: int, peers: bool) -> None:
    progress(f"sending {steps:,} steps of {CHARTS} metrics")
    send(found, "long", steps)
    found.until(lambda: rolled_up(found), "the rollups", 900)
    tell(case="run page, first view", steps=steps, ours=round(visit.drawn(f"{found.url}/run/long", VISIBLE), 3))
    ours = visit.drawn(f"{found.url}/run/long", OURS, CHARTS, height=6000)
    tell(case=f"run page, {CHARTS} charts", steps=steps, ours=round(ours, 3))
    for tool in ("trackio", "mlflow") if peers else ():
        progress(f"{tool}: storing and showing {PEER_STEPS:,} steps")
        taken = peer(tool, PEER_STEPS, visit)
        tell(case=f"{CHARTS} charts", peer=tool, peer_steps=PEER_STEPS, ours=round(ours, 3), theirs=round(taken, 3), ratio=round(taken / ours, 2))


def compare_page(found: Rig, visit: Visitor) -> None:
    progress(f"sending {COMPARED} runs to compare")
    runs = [f"compared-{i}" for i in range(COMPARED)]
    for run in runs:
        send(found, run, COMPARED_STEPS)
    found.until(lambda: rolled_up(found), "the rollups", 900)
    taken = visit.drawn(f"{found.url}/compare?runs={','.join(runs)}", OURS, CHARTS, height=6000)
    tell(case=f"compare, {COMPARED} runs, {CHARTS} charts", ours=round(taken, 3))


def fleet_page(found: Rig, visit: Visitor) -> None:
    progress(f"sending {FLEET} runs for the fleet")
    for i in range(FLEET):
        send(found, f"fleet-{i}", FLEET_ROWS, names=("reward.task.mean", "entropy.mean", "kl_ref.k3"))
    found.until(lambda: rolled_up(found), "the rollups", 900)
    tell(case=f"fleet, {FLEET} runs", ours=round(visit.drawn(f"{found.url}/", FLEET_DRAWN, 50), 3))


def fill(client: Any, part: str, inputs: Sequence[tuple[str, str, Any]], state: Sequence[tuple[str, str, Any]] = ()) -> None:
    """Has Dash make a part of a page."""
    given, known = ([{"id": name, "property": what, "value": value} for name, what, value in each] for each in (inputs, state))
    changed = [f"{inputs[0][0]}.{inputs[0][1]}"]
    body = {"output": f"{part}.children", "outputs": {"id": part, "property": "children"}, "inputs": given, "state": known, "changedPropIds": changed}
    if "broken" in client.post("/_dash-update-component", json=body).raise_for_status().text:
        sys.exit("a page could not be made")


def open_page(client: Any, path: str, search: str, runs: Sequence[str]) -> None:
    """What a browser asks for when it opens a page with charts: document, layout, the page itself, and the series of all its charts."""
    client.get(path + search).raise_for_status()
    client.get("/_dash-layout").raise_for_status()
    inputs = [("url", "pathname", path), ("url", "search", search), ("redraw", "data", None)]
    fill(client, "page", inputs)
    if len(runs) > 1:
        fill(client, "compare-findings", [("compare-ask", "data", list(runs))], [("url", "search", search)])
    client.get("/api/v1/live", params={"run": ",".join(runs), "metrics": ",".join(NAMES), "new": "", "since": ""}).raise_for_status()


def ingest_beside(found: Rig, steps: int) -> None:
    """How long batches take to be stored with nobody looking, and while several people open pages of long runs one after the other."""
    import httpx

    progress(f"sending a run of {steps:,} steps and {COMPARED} of {COMPARED_STEPS:,}")
    long, compared = f"opened-{steps}", [f"opened-{i}" for i in range(COMPARED)]
    send(found, long, steps)
    for run in compared:
        send(found, run, COMPARED_STEPS)
    writers = [f"written-{i}" for i in range(WRITERS)]
    for run in writers:
        send(found, run, 1, ended=False)
    found.until(lambda: rolled_up(found), "the rollups", 900)
    steps_of = dict.fromkeys(writers, 1)

    def write(run: str) -> list[float]:
        """Seconds that each of a run's batches took."""
        took = []
        with httpx.Client(base_url=found.url, timeout=60) as client:
            end = time.monotonic() + INGEST_S
            while time.monotonic() < end:
                step = steps_of[run]
                rows = [Row(step, time.time(), {name: value(m, step) for m, name in enumerate(NAMES)})]
                body, began = to_json(Batch("a", step + 1, rows)), time.monotonic()
                client.post(f"/api/v1/runs/{run}/batches", content=body, headers={"Content-Type": "application/json"}).raise_for_status()
                took.append(time.monotonic() - began)
                steps_of[run] += 1
                time.sleep(max(0.0, WRITE_EVERY_S - took[-1]))
        return took

    def look(number: int, stop: threading.Event) -> int:
        opened = 0
        with httpx.Client(base_url=found.url, headers={"Accept-Encoding": "gzip"}, timeout=60) as client:
            stop.wait(number * OPEN_EVERY_S / LOOKERS)
            while not stop.is_set():
                began = time.monotonic()
                if (opened + number) % 2:
                    open_page(client, f"/run/{long}", "", [long])
                else:
                    open_page(client, "/compare", f"?runs={','.join(compared)}", compared)
                opened += 1
                stop.wait(max(0.0, OPEN_EVERY_S - (time.monotonic() - began)))
        return opened

    def measure() -> list[float]:
        with ThreadPoolExecutor(WRITERS) as pool:
            return sorted(took for run in pool.map(write, writers) for took in run)

    measure()
    alone, stop = measure(), threading.Event()
    with ThreadPoolExecutor(LOOKERS) as pool:
        lookers = [pool.submit(look, number, stop) for number in range(LOOKERS)]
        beside = measure()
        stop.set()
    p99 = [values[int(0.99 * len(values))] for values in (alone, beside)]
    tell(
        case=f"ingest of {WRITERS} runs while {LOOKERS} people open pages",
        batches=len(beside),
        pages_opened=sum(each.result() for each in lookers),
        p50_ms=[round(1000 * median(values), 1) for values in (alone, beside)],
        p99_ms=[round(1000 * value, 1) for value in p99],
        ratio=round(p99[1] / p99[0], 2),
    )


CASES = ("run", "compare", "fleet", "live", "ingest")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.pages", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=STEPS, help=f"length of the long run (default {STEPS:,})")
    parser.add_argument("--peers", action="store_true", help="also draw the same data with Trackio and MLflow")
    parser.add_argument("--only", nargs="+", choices=CASES, default=CASES, help="some of the cases")
    arguments = parser.parse_args()
    with rig(durable=False, collector=False) as found, visitor(arguments.rounds) as visit:
        found.start("pages", ["-m", "monitor.cli", "serve", "--port", str(found.port)])
        found.until(found.answers, "the pages to answer")
        if "run" in arguments.only:
            run_page(found, visit, arguments.steps, arguments.peers)
        if "compare" in arguments.only:
            compare_page(found, visit)
        if "fleet" in arguments.only:
            fleet_page(found, visit)
        if "live" in arguments.only:
            live(found, visit)
        if "ingest" in arguments.only:
            ingest_beside(found, arguments.steps)


if __name__ == "__main__":
    main()
