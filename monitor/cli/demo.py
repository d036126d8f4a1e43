"""``vitals demo``: a real policy learns, another one is ruined by the reward it was given, and the alert arrives."""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from monitor.cli import demo_story, stack
from monitor.cli.errors import CommandError
from monitor.cli.parsers import command
from monitor.cli.supervisor import Process, Supervisor
from monitor.cli.up import end_cleanly, say
from monitor.detect.words import counted

PROJECT = "demo"
HEALTHY, FARMED = "healthy", "goblin-bonus"
TIME_LIMIT = 360.0
POLL_SECONDS = 1.0


def add_parser(commands: Any) -> None:
    parser = command(
        commands,
        "demo",
        "Watch a small policy learn, another one collapse under a badly chosen bonus, and the alert arrive.",
        """
vitals demo                     # stays up until Ctrl-C; one to two minutes until the end of the story
vitals demo --check             # the same without a person: one line of JSON, exit code 0 if the story came true
vitals demo --seed 3 --port 9000""",
        run,
    )
    parser.add_argument("--check", action="store_true", help="end by itself with a one-line JSON summary")
    parser.add_argument("--seed", type=int, default=0, help="seed of both policies")
    parser.add_argument("--port", type=int, metavar="N", help="port of the dashboards; the first free one from 8900 on if not given")
    parser.add_argument("--data-dir", metavar="FOLDER", help="keep the demo's data there; a temporary folder if not given")


@dataclass
class Chapter:
    """One policy in training and what has been seen of it."""

    preset: str
    trainer: Process
    uid: str | None = None
    curve: list[tuple[int, float]] = field(default_factory=list)
    alarms: list[demo_story.Alarm] = field(default_factory=list)
    state: str = "starting"
    told: int = -1

    @property
    def ended(self) -> bool:
        return self.state not in ("starting", "running")

    def look(self, address: str) -> None:
        """Read the run's state, task reward and alarms from the collector."""
        if self.uid is None:
            found = stack.get_json(f"{address}/api/v1/runs?project={PROJECT}")["runs"]
            self.uid = next((run["run"] for run in found if run["name"].startswith(self.preset)), None)
        if self.uid is None:
            return
        self.state = stack.get_json(f"{address}/api/v1/runs/{self.uid}")["state"]
        series = stack.get_json(f"{address}/api/v1/runs/{self.uid}/series?metrics=reward.task.mean&points=20000")["series"]
        points: dict[int, float] = {}
        for curve in (curve for _, curve in sorted(series.get("reward.task.mean", {}).items(), key=lambda item: int(item[0]))):
            points.update((x, y) for x, y in zip(curve["x"], curve["y"], strict=True) if y is not None)
        self.curve = sorted(points.items())
        self.alarms = [
            demo_story.Alarm(alert["detector"], alert["severity"], alert["opened_step"])
            for alert in stack.get_json(f"{address}/api/v1/alerts?run={self.uid}")
            if alert["severity"] in ("warning", "critical")
        ]


class Demo:
    """The stack, two trainers, a webhook receiver, and the story they tell."""

    def __init__(self, folder: Path, port: int, seed: int) -> None:
        from monitor.cli.receiver import Receiver

        self.settings = stack.load_settings(host="127.0.0.1", port=port, data_dir=folder)
        self.receiver = Receiver(self._delivered)
        self.supervisor = Supervisor(say)
        self.seed = seed
        self.begun = time.monotonic()
        self.address = ""
        self.chapters: list[Chapter] = []

    def start(self) -> None:
        """Start the stack and both trainers. Raises CommandError."""
        hook = {"VITALS_WEBHOOK_URL": self.receiver.url, "VITALS_WEBHOOK_SECRET": self.receiver.secret, "VITALS_ALLOW_PRIVATE_WEBHOOKS": "1"}
        self.address = stack.start_stack(self.supervisor, self.settings, say, hook)
        for preset in (HEALTHY, FARMED):
            process = Process(f"trainer {preset}", self._trainer(preset), self.settings.data_dir / "logs" / f"{preset}.log", lambda: True)
            process.spawn()
            self.chapters.append(Chapter(preset, process))
        say("two policies warm up on demonstrations (15 to 40 s), then learn by reinforcement")

    def _trainer(self, preset: str) -> list[str]:
        where = ["--collector", self.address, "--project", PROJECT, "--name", f"{preset} (seed {self.seed})"]
        return [sys.executable, "-m", "trainer", "--preset", preset, "--seed", str(self.seed), *where]

    def watch(self, patience: float) -> None:
        """Follow both runs to their end, telling what happens. Raises CommandError when a trainer dies or ``patience`` seconds have passed."""
        announced = False
        while not all(chapter.ended for chapter in self.chapters):
            if self.elapsed() > patience:
                raise CommandError(f"the story did not end within {patience:.0f} s; logs are in {self.settings.data_dir / 'logs'}", code=1)
            self.supervisor.watch()
            for chapter in self.chapters:
                self._look(chapter)
            if not announced and any(chapter.curve for chapter in self.chapters):
                announced = True
                say(f"\n  live data is arriving: open {self.address}\n")
            time.sleep(POLL_SECONDS)
        self._await_deliveries()

    def _look(self, chapter: Chapter) -> None:
        if chapter.ended:
            return
        try:
            chapter.look(self.address)
        except (OSError, ValueError):
            return  # the collector is being started again; the next look will tell
        if chapter.curve and chapter.curve[-1][0] >= chapter.told + 5:
            chapter.told = chapter.curve[-1][0]
            verdict = f", {counted(len(chapter.alarms), 'alert')}" if chapter.alarms else ""
            say(f"[{self.elapsed():4.0f} s] {chapter.preset:13} step {chapter.told:3}  task reward {chapter.curve[-1][1]:.2f}{verdict}")
        if not chapter.ended and not chapter.trainer.alive() and chapter.trainer.exit_code != 0:
            raise CommandError(
                f"the trainer of {chapter.preset} ended with code {chapter.trainer.exit_code} (its log is {chapter.trainer.log})", code=1
            )

    def _await_deliveries(self) -> None:
        """Give judgement and delivery of the last rows a moment."""
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline and len(self.delivered()) < len({alarm.detector for alarm in self.farmed.alarms}):
            self.supervisor.watch()
            time.sleep(0.2)
            self.farmed.look(self.address)

    def _delivered(self, payload: dict[str, Any]) -> None:
        first = len(self.receiver.payloads) == 1
        data = payload["data"]
        say(f"[{self.elapsed():4.0f} s] alert delivered: {data['run_name']}, step {data['step']}: {data['to']}, {data['title']}")
        if first:
            say("the first one, as the webhook received it:\n" + json.dumps(payload, indent=2))

    @property
    def healthy(self) -> Chapter:
        return self.chapters[0]

    @property
    def farmed(self) -> Chapter:
        return self.chapters[1]

    def delivered(self) -> set[str]:
        """The detectors whose alerts on the farmed run have arrived at the receiver."""
        return {payload["data"]["detector"] for payload in self.receiver.payloads if payload["data"]["run"] == self.farmed.uid}

    def elapsed(self) -> float:
        return time.monotonic() - self.begun

    def summary(self) -> dict[str, Any]:
        """The story in numbers; ``ok`` when every part of it came true."""
        damage = demo_story.damage_step(self.farmed.curve)
        early = demo_story.in_time(self.farmed.alarms, damage)
        arrived = self.delivered()
        told = {
            "learned": demo_story.learned(self.healthy.curve),
            "healthy_alerts": [asdict(alarm) for alarm in self.healthy.alarms],
            "alerts": [asdict(alarm) for alarm in self.farmed.alarms],
            "damage_step": damage,
            "early_alerts": [alarm.detector for alarm in early],
            "delivered": sorted(arrived),
            "seconds": round(self.elapsed(), 1),
        }
        delivered_early = any(alarm.detector in arrived for alarm in early)
        return {"ok": bool(told["learned"] and not self.healthy.alarms and delivered_early), **told}

    def stop(self) -> None:
        for chapter in self.chapters:
            chapter.trainer.stop()
        self.supervisor.stop()
        self.receiver.close()


def run(arguments: argparse.Namespace) -> int:
    end_cleanly()
    if arguments.port is not None:
        stack.require_free_port("127.0.0.1", arguments.port)
    port = arguments.port or stack.free_port("127.0.0.1", 8900)
    temporary = arguments.data_dir is None
    folder = Path(tempfile.mkdtemp(prefix="vitals-demo-")) if temporary else Path(arguments.data_dir)
    if temporary:
        folder.chmod(0o755)  # the embedded server does not run as root and must be able to enter
    try:
        with stack.only_one(folder):
            return _play(Demo(folder, port, arguments.seed), check=arguments.check)
    except KeyboardInterrupt:
        say("stopping")
        return 0
    finally:
        if temporary:
            shutil.rmtree(folder, ignore_errors=True)


def _play(demo: Demo, *, check: bool) -> int:
    """Tell the story; with ``check`` return the exit code at its end, else stay up until interrupted."""
    try:
        demo.start()
        demo.watch(TIME_LIMIT)
        summary = demo.summary()
        if check:
            say(json.dumps(summary))
            return 0 if summary["ok"] else 1
        _tell(demo, summary)
        while True:
            demo.supervisor.watch()
            time.sleep(0.2)
    finally:
        demo.stop()


def _tell(demo: Demo, summary: dict[str, Any]) -> None:
    first = demo.farmed.curve and demo.healthy.curve
    if not first:
        return
    say(
        f"\n  {HEALTHY}: task reward {demo.healthy.curve[0][1]:.2f} -> {demo.healthy.curve[-1][1]:.2f}, {counted(len(demo.healthy.alarms), 'alert')}"
        f"\n  {FARMED}: task reward {demo.farmed.curve[0][1]:.2f} -> {demo.farmed.curve[-1][1]:.2f}; it had halved at step {summary['damage_step']}"
    )
    for alarm in sorted(demo.farmed.alarms, key=lambda alarm: alarm.step):
        say(f"    step {alarm.step:3}  {alarm.severity:8}  {alarm.detector}")
    say(f"\n  look at it:  {demo.address}/run/{demo.farmed.uid}\n  stop:        Ctrl-C\n")
