"""``vitals diagnose`` judges a file as a live run is judged, and tells it as text, JSON and HTML."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

from monitor.alerts.judgement import AUXILIARY
from monitor.cli import main
from monitor.cli.curves import BUCKETS, Curve
from monitor.cli.offline import diagnose

ROWS = 40
BROKEN_AT = 20


def write_run(path: Path, broken: bool) -> Path:
    """A run that learns; with ``broken``, the loss is no number from row 20 on."""
    rows = []
    for i in range(ROWS):
        bad = broken and i >= BROKEN_AT
        rows.append(
            {
                "step": i,
                "reward.task.mean": 0.3 + 0.01 * i,
                "reward.aux.mean": 0.1,
                "entropy.mean": 0.5,
                "opt.loss": math.nan if bad else 0.01,
                "opt.grad_norm": math.inf if bad else 1.0,
                "adv.nonzero_frac": 0.8,
                "<script>alert(1)</script>": 1.0,
            }
        )
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.fixture
def broken(tmp_path: Path) -> Path:
    return write_run(tmp_path / "broken.jsonl", True)


@pytest.fixture
def healthy(tmp_path: Path) -> Path:
    return write_run(tmp_path / "healthy.jsonl", False)


def test_json_has_the_promised_shape(broken: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["diagnose", str(broken), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["rows"] == ROWS
    assert isinstance(found["cannot_judge"], list)
    first = next(entry for entry in found["findings"] if entry["detector"] == "non_finite")
    assert first["row"] == first["step"] == BROKEN_AT
    assert first["severity"] in ("warning", "critical")
    assert all(first[key] for key in ("title", "evidence", "cause", "advice"))
    assert first["resolved_row"] is None
    assert found["verdict"]["state"] == "critical"


def test_text_names_verdict_evidence_and_remedy(broken: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["diagnose", str(broken)]) == 0
    out = capsys.readouterr().out
    assert out.startswith(f"{broken}: critical")
    assert f"non_finite: row {BROKEN_AT} (step {BROKEN_AT}) critical" in out
    assert "do first" in out
    assert "\x1b[" not in out


@pytest.mark.parametrize(("severity", "code"), [("warning", 1), ("critical", 1)])
def test_alarms_fail_a_pipeline_that_asks_for_it(broken: Path, severity: str, code: int) -> None:
    assert main(["diagnose", str(broken), "--json", "--fail-on", severity]) == code


def test_a_healthy_run_passes(healthy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["diagnose", str(healthy), "--json", "--fail-on", "warning"]) == 0
    assert json.loads(capsys.readouterr().out)["verdict"]["state"] == "healthy"


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["nothing.log"], "does not exist"),
        (["healthy.jsonl", "--task", "reward/x"], "no 'reward/x'"),
        (["healthy.jsonl", "--rules", "none.toml"], "cannot be read"),
        (["healthy.jsonl", "--html", "no/such/folder/report.html"], "cannot be written"),
    ],
)
def test_wrong_use_is_one_sentence_and_code_2(
    arguments: list[str], sentence: str, healthy: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(healthy.parent)
    assert main(["diagnose", *arguments]) == 2
    err = capsys.readouterr().err
    assert sentence in err
    assert err.count("\n") == 1


class _Page(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.urls: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.urls += [value or "" for key, value in attrs if key in ("src", "href", "xlink:href")]


def test_the_page_is_whole_in_itself(broken: Path, tmp_path: Path) -> None:
    report = tmp_path / "report.html"
    assert main(["diagnose", str(broken), "--json", "--html", str(report)]) == 0
    text = report.read_text("utf-8")
    page = _Page()
    page.feed(text)
    assert page.urls == []
    assert "script" not in page.tags
    assert page.tags.count("svg") == 7
    assert "url(" not in text
    assert text.count('class="nan"') == 2 * (ROWS - BROKEN_AT)
    assert 'class="shade-critical"' in text


def test_alerts_of_one_incident_are_told_together(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "run.jsonl"
    rows = [{"step": i, "opt.loss": math.nan if i >= 20 else 0.1, "len.truncated_frac": 0.9 if i >= 21 else 0.01} for i in range(ROWS)]
    for i, row in enumerate(rows):
        row["reward.task.mean"] = 0.0 if i >= 21 else 0.6 + 0.01 * (i % 3)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    groups = diagnose(path).incidents()
    first = groups[0]
    assert first[0][0].finding.detector == "non_finite"
    assert len(first) >= 2
    assert {entry.incident for alert in first for entry in alert} == {1}
    assert main(["diagnose", str(path)]) == 0
    out = capsys.readouterr().out
    assert out.count("incident 1\n") == 1
    assert "(follows from non_finite)" in out


def test_many_that_cannot_judge_are_one_line(healthy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["diagnose", str(healthy)]) == 0
    out = capsys.readouterr().out
    found = diagnose(healthy)
    told = " ".join(out.split("Cannot judge\n")[1].split("\n\n")[0].split())
    assert told.startswith(f"{len(found.lacking)} detectors cannot judge: need adv.abs_max, env.*, eval.task.mean, ")
    assert told.endswith("--json lists them")
    assert len(found.cannot_judge) == len(found.lacking) > 10
    assert out.count("cannot be judged") == 1


def test_declared_rewards_reach_the_detectors(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text(
        "".join(json.dumps({"step": i, "optim/lr": 1e-4, "progress/done_frac": 0.1, "reward/f": 0.5, "reward/g": 0.5}) + "\n" for i in range(5))
    )
    context = diagnose(path, "reward/f", ["reward/g"]).context
    assert (context.task, context.aux) == ("reward.fn.f.mean", ("reward.fn.g.mean", AUXILIARY))


def test_auxiliary_rewards_are_given_again_or_with_commas(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "metrics.jsonl"
    row = {"optim/lr": 1e-4, "progress/done_frac": 0.1, "reward/f": 0.5, "reward/g": 0.5, "reward/h": 0.5}
    path.write_text("".join(json.dumps({"step": i, **row}) + "\n" for i in range(5)))
    for given in (["--aux", "reward/g", "--aux", "reward/h"], ["--aux", "reward/g, reward/h"]):
        assert main(["diagnose", str(path), "--json", "--task", "reward/f", *given]) == 0
        assert json.loads(capsys.readouterr().out)["aux"][:2] == ["reward.fn.g.mean", "reward.fn.h.mean"]


def test_diagnosing_needs_no_third_party_package(healthy: Path) -> None:
    probe = (
        "import sys; from monitor.cli import main; main(['diagnose', sys.argv[1], '--json']);"
        "print([m for m in ('fastapi', 'sqlalchemy', 'msgspec', 'pydantic', 'torch', 'dash', 'httpx') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", probe, str(healthy)], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_a_header_line_declares_the_run(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    head = {"run": "r", "algorithm": "gspo", "signal": "teacher_kl", "task_reward": "score", "aux_rewards": ["style"], "config": {"lr": 1e-6}}
    rows = [{"step": i, "values": {"score": 0.5, "style": 0.1, "entropy.mean": 0.5, "opt.loss": 0.1}} for i in range(5)]
    path.write_text("".join(json.dumps(row) + "\n" for row in (head, *rows)))
    context = diagnose(path).context
    assert (context.algorithm, context.signal, context.task, context.aux) == ("gspo", "teacher_kl", "score", ("style", AUXILIARY))
    assert context.config == {"lr": 1e-6}


def test_curves_keep_extremes_in_bounded_space() -> None:
    curve = Curve()
    for index in range(100_000):
        curve.add(index, 1e6 if index == 54_321 else math.nan if index == 77_777 else float(index % 7))
    assert len(curve.buckets) <= BUCKETS
    assert max(bucket[1] for bucket in curve.buckets.values()) == 1e6
    assert curve.broken == {77_777 // curve.stride}


def test_an_announced_change_starts_baselines_anew(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    rows: list[dict[str, object]] = [{"step": i, "reward.task.mean": (0.8 if i < 30 else 0.35) + 0.01 * (i % 3), "opt.loss": 0.1} for i in range(50)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert "peak_and_fall" in {entry.finding.detector for entry in diagnose(path).alarms()}
    change = {"step": 30, "event": "regime", "detail": {"mix.pair": 2.0}}
    path.write_text("".join(json.dumps(row) + "\n" for row in (*rows[:30], change, *rows[30:])))
    found = diagnose(path)
    assert (found.rows, found.notes) == (50, [])
    assert not found.alarms()
