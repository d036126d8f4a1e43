from __future__ import annotations

import itertools
import re
import shlex
from pathlib import Path

import pytest

from docs.generate import HERE, PAGES
from monitor.cli import parser
from monitor.cli.offline import diagnose
from monitor.client.lifetime import EXIT_TIMEOUT_S
from monitor.client.run import FINISH_TIMEOUT_S
from monitor.client.starting import DEFAULT_URL
from monitor.metrics import describe
from monitor.wire import to_json
from tests.unit.client.receiver import receiving

README = (HERE.parent / "README.md").read_text("utf-8")


@pytest.mark.parametrize("name", PAGES)
def test_generated_page_is_current(name: str) -> None:
    assert (HERE / name).read_text() == PAGES[name](), f"docs/{name} is stale; run `make docs`"


def test_the_sdk_page_tells_how_long_an_end_may_take() -> None:
    page = (HERE / "sdk.md").read_text("utf-8")
    assert f"| `finish(timeout=)`, else {FINISH_TIMEOUT_S:g} |" in page
    assert f"| `VITALS_EXIT_TIMEOUT_S`, else {EXIT_TIMEOUT_S:g} |" in page


def test_the_readme_tells_where_a_run_goes() -> None:
    assert f"A collector elsewhere than at `{DEFAULT_URL}` is named by `VITALS_URL`" in README


def _blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


def test_the_loop_of_the_readme_runs_as_it_stands_and_is_judged_well(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (loop,) = _blocks(README, "python")
    monkeypatch.setenv("VITALS_SPOOL_DIR", str(tmp_path / "spool"))
    with receiving() as collector:
        monkeypatch.setenv("VITALS_URL", collector.url)
        exec(compile(loop, "README.md", "exec"), {})
        rows = collector.rows()
    assert [row["step"] for row in rows] == list(range(200)) and collector.ends[0]["state"] == "finished"
    assert all(describe(name).organ != "custom" for name in rows[0]["values"])
    (tmp_path / "rows.jsonl").write_bytes(b"".join(to_json({"step": row["step"], **row["values"]}) + b"\n" for row in rows))
    found = diagnose(tmp_path / "rows.jsonl")
    assert found.verdict.state == "healthy" and not found.alarms()


@pytest.mark.parametrize("page", [HERE.parent / "README.md", *sorted(HERE.glob("*.md"))], ids=lambda page: page.name)
def test_every_command_of_the_docs_is_one_that_the_program_takes(page: Path) -> None:
    for block in re.findall(r"```(?:text)?\n(.*?)```", page.read_text("utf-8"), re.DOTALL):
        for line in re.findall(r"^\s*(?:[A-Z_]+=\S+ )*vitals (.*)$", block, re.MULTILINE):
            words = shlex.split(re.split(r"  +", line)[0], comments=True)
            parser().parse_args(list(itertools.takewhile(lambda word: word not in ("|", ">"), words)))
