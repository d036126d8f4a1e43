"""Each format is read for what it says, and whatever a file holds, reading ends in rows or in one sentence."""

from __future__ import annotations

import gzip
import json
import math
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from log_samples import REWARDS, SAMPLES, STEPS, Sample, event, frame, tinker_row, trl_row, write

from monitor.adapters.readers import ReadError, read
from monitor.adapters.readers.source import number
from monitor.adapters.readers.tensorboard import masked_crc

BY_ID = {sample.id: sample for sample in SAMPLES}


def values(path: Path, name: str) -> list[float | None]:
    return [row.values.get(name) for row in read(path).rows]


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.id)
def test_every_format_gives_the_same_run(sample: Sample, tmp_path: Path) -> None:
    log = read(write(sample, tmp_path))
    rows = [row for row in log.rows if sample.reward in row.values]
    assert log.framework.id == sample.framework
    assert [row.values[sample.reward] for row in rows] == pytest.approx(REWARDS)
    assert tuple(row.step for row in rows) == sample.steps
    assert [row.index for row in rows] == list(range(rows[0].index, rows[0].index + STEPS))


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.id)
def test_a_file_cut_anywhere_ends_in_rows_or_one_sentence(sample: Sample, tmp_path: Path) -> None:
    path = tmp_path / sample.name
    ends = len(sample.content) - 250  # the last lines are cut at every byte, the others wherever a prime stride falls
    for size in (*range(0, max(ends, 0), 23), *range(max(ends, 0), len(sample.content))):
        path.write_bytes(sample.content[:size])
        whole_rows = 0
        try:
            log = read(path)
            whole_rows = sum(1 for _ in log.rows)
        except ReadError as error:
            assert "\n" not in str(error)
        assert whole_rows <= STEPS + 1


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.id)
def test_rows_before_a_cut_are_kept(sample: Sample, tmp_path: Path) -> None:
    if sample.id == "notebook":
        pytest.skip("a notebook is one JSON document that cannot be read in part")
    path = tmp_path / sample.name
    path.write_bytes(sample.content[: int(len(sample.content) * 0.8)])
    found = [value for value in values(path, sample.reward) if value is not None]
    assert len(found) >= STEPS // 2
    assert found == pytest.approx(REWARDS[: len(found)], abs=0.13)


@settings(max_examples=150, deadline=None)
@given(sample=st.sampled_from(SAMPLES), data=st.data())
def test_damaged_bytes_never_raise(sample: Sample, data: st.DataObject) -> None:
    content = bytearray(sample.content)
    for _ in range(data.draw(st.integers(1, 8))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / sample.name
        path.write_bytes(content)
        try:
            for row in read(path).rows:
                assert all(isinstance(value, float) for value in row.values.values())
        except ReadError as error:
            assert "\n" not in str(error)


@settings(max_examples=150, deadline=None)
@given(content=st.one_of(st.binary(max_size=300), st.text(max_size=300).map(lambda text: text.encode("utf-8", "surrogatepass"))))
def test_any_bytes_end_in_rows_or_one_sentence(content: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "log"
        path.write_bytes(content)
        try:
            list(read(path).rows)
        except ReadError as error:
            assert str(error)


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("np.float64(0.25)", 0.25),
        ("np.int32(7)", 7.0),
        ("tensor(0.5, device='cuda:0')", 0.5),
        ("1.169e-05", 1.169e-05),
        ("87.5%", 0.875),
        ("-Infinity", -math.inf),
        ("inf", math.inf),
        (True, 1.0),
        (10**400, math.inf),
        ("null", None),
        ("", None),
        ("No Log", None),
        (None, None),
        ("12/100", None),
        ("1_000", None),
        ("0x10", None),
        ([1.0], None),
    ],
)
def test_numbers_as_people_write_them(written: object, meant: float | None) -> None:
    assert number(written) == meant


def test_not_a_number_is_kept_and_absent_is_not(tmp_path: Path) -> None:
    assert math.isnan(number("np.float64(nan)") or 0.0)
    rows = list(read(write(BY_ID["tinker"], tmp_path)).rows)
    assert math.isnan(rows[1].values["mismatch.kl.k1"])
    assert rows[1].values["group.zero_var_frac"] == 0.5
    assert "perf.step_time_s" not in rows[1].values
    assert rows[1].values["time/save_checkpoint"] == 2.5
    state = list(read(write(BY_ID["trainer_state"], tmp_path)).rows)
    assert state[1].values["opt.grad_norm"] == math.inf
    assert state[2].values["eval.reward"] == 0.7
    verl = list(read(write(BY_ID["verl file"], tmp_path)).rows)
    assert all("update.kl_old.k1" not in row.values for row in verl)


def test_rounded_zeros_of_small_quantities_are_no_values(tmp_path: Path) -> None:
    rows = list(read(write(BY_ID["verl rounded"], tmp_path)).rows)
    assert rows[1].values["update.kl_old.k1"] == 0.25
    assert all("update.kl_old.k1" not in row.values for row in rows[2:])
    exact = list(read(write(BY_ID["verl console"], tmp_path)).rows)
    assert exact[2].values["update.kl_old.k1"] == 0.0
    assert exact[2].values["adv.abs_max"] == 2.0


def test_a_step_that_falls_back_opens_a_segment(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    order = (0, 1, 2, 3, 2, 3, 4)
    path.write_text("".join(json.dumps(tinker_row(step, 0.1 * k)) + "\n" for k, step in enumerate(order)))
    log = read(path)
    rows = list(log.rows)
    assert [(row.index, row.step, row.segment) for row in rows] == [(k, step, k >= 4) for k, step in enumerate(order)]
    assert any("line 5" in note and "resume" in note for note in log.notes)


def test_records_of_one_step_are_united_and_the_last_value_counts(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    records = [{"step": 0, "loss": 1.0, "reward": 0.5}, {"step": 0, "entropy": 0.25, "loss": 2.0}, {"step": 1, "loss": 3.0, "reward": 0.5}]
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    log = read(path)
    first, second = log.rows
    assert (first.values["opt.loss"], first.values["entropy.mean"], first.values["reward.total.mean"]) == (2.0, 0.25, 0.5)
    assert second.step == 1
    assert any("line 2" in note for note in log.notes)


def test_tags_written_one_by_one_meet_in_their_step(tmp_path: Path) -> None:
    path = tmp_path / "events.out.tfevents.1.a"
    order = [(0, "reward"), (1, "reward"), (0, "entropy"), (2, "reward"), (1, "entropy"), (2, "entropy")]
    path.write_bytes(b"".join(event(step, {tag: step + 0.5}) for step, tag in order))
    rows = list(read(tmp_path).rows)
    assert [(row.step, row.values["reward.total.mean"], row.values["entropy.mean"]) for row in rows] == [(k, k + 0.5, k + 0.5) for k in range(3)]


def test_checksums_are_the_standard_ones_and_damage_is_told(tmp_path: Path) -> None:
    crc = 0xE3069283  # CRC-32C of "123456789" (RFC 3720, appendix B.4 uses the same polynomial)
    assert masked_crc(b"123456789") == ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF
    path = tmp_path / "events.out.tfevents.1.a"
    good, bad = event(0, {"reward": 0.5}), bytearray(event(1, {"reward": 0.75}))
    bad[20] ^= 0xFF
    path.write_bytes(good + bytes(bad) + event(2, {"reward": 0.25}))
    log = read(path)
    assert [row.step for row in log.rows] == [0, 2]
    assert any("record 2" in note and "checksum" in note for note in log.notes)


def test_broken_lines_are_left_out_and_named(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    lines = [json.dumps(tinker_row(i, reward)) for i, reward in enumerate(REWARDS)]
    lines[2] = lines[2][:40]
    path.write_text("\n".join(["starting", *lines]) + "\n" + lines[3][:30])
    log = read(path)
    assert [row.step for row in log.rows] == [0, 1, 3, 4, 5]
    assert any("line 4" in note for note in log.notes)
    assert any("line 8" in note and "cut off" in note for note in log.notes)


def test_malformed_json_in_the_middle_is_refused_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "trainer_state.json"
    text = BY_ID["trainer_state"].content.decode()
    lines = text.splitlines()
    at = next(i for i, line in enumerate(lines) if i > 20 and '"entropy"' in line)
    lines[at] = lines[at].replace(":", " ")
    path.write_text("\n".join(lines))
    with pytest.raises(ReadError, match=rf"line {at + 1}: this is not valid JSON"):
        list(read(path).rows)


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("empty.log", b"", "is empty"),
        ("blank.log", b"\n \n", "is empty"),
        ("picture.png", b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + bytes(64), "binary file"),
        ("train.py", b"import torch\nfor step in range(3):\n    print(step)\n", "line 1: no format known"),
        ("notes.md", b"# Notes\n\nThe run went well: reward was high.\n", "line 3: no format known"),
        ("config.json", b'{"model": "x", "optimizer": "adam"}\n', "not one row"),
        ("config.json", b'{\n "lr": 1e-6,\n "model": "x"\n}\n', "no log_history"),
        ("list.json", b"[1, 2, 3]\n", "no format known"),
    ],
)
def test_files_that_are_no_log_are_refused_in_one_sentence(name: str, content: bytes, sentence: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(ReadError, match=sentence) as caught:
        list(read(path).rows)
    assert "\n" not in str(caught.value)
    assert str(path) in str(caught.value)


def _program(*metrics: str) -> bytes:
    return ("import torch\n" * 60 + "".join(f"{line}\nprint(line)\n" for line in metrics)).encode()


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (_program("self.step = 0"), "no line holds metrics"),
        (_program("steps = 120"), "no line holds metrics"),
        (_program("start(dim=1, step=2)"), r"numbers on 1 of 62 lines \(line 61: dim\)"),
        (_program('limits = {"s": 1, "m": 60}'), r"numbers on 1 of 62 lines \(line 61: m, s\)"),
        (_program("# An example: step=1 | loss=0.5"), r"numbers on 1 of 62 lines \(line 61: loss\)"),
        (_program(*(f"lr = 1e-4  # step {i}" for i in range(5))), r"numbers on 5 of 70 lines \(line 61: lr\)"),
    ],
)
def test_a_text_that_happens_to_hold_numbers_is_refused(content: bytes, sentence: str, tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_bytes(content)
    with pytest.raises(ReadError, match=sentence):
        read(path)


def test_a_talkative_log_is_read(tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    path.write_text("".join("The answer is a, because b.\n" * 200 + f"step={i} reward=0.{i}\n" for i in range(3)))
    assert values(path, "reward.total.mean") == [0.0, 0.1, 0.2]


@pytest.mark.parametrize(
    ("line", "step"), [("step 7: loss=0.5", 7), ("steps: 7, loss=0.5", 7), ("7/10 | loss=0.5 | n=3", 7), ("update=7 loss=0.5", 7)]
)
def test_a_pair_that_is_the_step_is_no_metric(line: str, step: int, tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    path.write_text(f"{line}\n")
    (row,) = read(path).rows
    assert (row.step, row.values["opt.loss"]) == (step, 0.5)
    assert not {"steps", "update"} & row.values.keys()


ROW = '{"step": %d, "loss": 0.5, "reward": 0.5}'


@pytest.mark.parametrize(
    ("name", "lines", "told"),
    [
        ("bad.jsonl", ['{"step": 0, "loss": 0.5', ROW % 1, ROW % 2], "line 1 is broken JSON"),
        ("bad.jsonl", ["", ROW % 0, '{"step": 1, "loss": ', ROW % 2], "line 3 is broken JSON"),
        ("bad.jsonl", [ROW % 0, "Epoch 1", ROW % 2], "line 2 is no JSON object"),
        ("bad.json", ["[", ROW % 0 + ",", '{"step": 1', '"loss": 0.5}]'], "line 3: this is not valid JSON"),
        ("bad.json", ["{", '"loss": [1, 2],', '"reward": [1, 2]', '"x": 3', "}"], "line 3: this is not valid JSON"),
        ("bad.json", ["{", '"loss": [1, 2],', '"reward": [1, x]', "}"], "line 3: this is not valid JSON"),
        ("bad.ipynb", ['{"nbformat": 4,', '"cells": [', "{}", "{}]}"], "line 3: this is not a whole notebook"),
        ("bad.csv", ["# made by hand", "step,loss,reward", "0,1,2", "1,1", "2,1,2"], "line 4 has 2 columns"),
        ("bad.csv", ["# made by hand", "Step,a - x,b - x", "0,1,2"], "line 2: the table holds 2 runs"),
        ("bad.csv", ["step,loss", "0,1", '1,"' + "9" * 140_000, "2,3"], "line 3: the row cannot be split"),
        ("bad.log", ["", "# a comment", "Nothing here is 5"], "line 3: no format known"),
        ("bad.log", ["hello", "step=0 loss=1", "step=1 loss=2", "step=0 loss=3"], "line 4: the step falls back"),
    ],
)
def test_what_is_wrong_is_named_by_its_line_counted_from_1(name: str, lines: list[str], told: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_text("\n".join(lines) + "\n")
    try:
        log = read(path)
        list(log.rows)
        said = log.notes
    except ReadError as error:
        said = [str(error)]
    assert any(told in each for each in said), said


def test_records_of_event_files_are_no_lines(tmp_path: Path) -> None:
    path = tmp_path / "events.out.tfevents.1.a"
    path.write_bytes(event(5, {"reward": 0.5}) + event(2, {"reward": 0.25}) + event(2, {"reward": 0.75}))
    log = read(path)
    assert [row.step for row in log.rows] == [5, 2]
    assert [note.split(":")[0] for note in log.notes if "step" in note] == ["record 2", "record 3"]


def test_missing_paths_and_empty_folders_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ReadError, match="does not exist"):
        read(tmp_path / "nothing.log")
    with pytest.raises(ReadError, match="name the log file itself"):
        read(tmp_path)


def test_a_folder_of_checkpoints_is_read_from_the_newest(tmp_path: Path) -> None:
    for step in (9, 10, 100):
        folder = tmp_path / f"checkpoint-{step}"
        folder.mkdir()
        history = [{**trl_row(0, 0.5), "step": k} for k in range(1, step + 1)]
        (folder / "trainer_state.json").write_text(json.dumps({"log_history": history}, indent=2))
    assert sum(1 for _ in read(tmp_path).rows) == 100


def test_packed_logs_are_read(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl.gz"
    path.write_bytes(gzip.compress(BY_ID["tinker"].content))
    assert values(path, "reward.fn.correct.mean") == pytest.approx(REWARDS)


@pytest.mark.parametrize("wrong", [5, {"a": 1}, [1, None], "", None, True])
def test_a_header_of_wrong_types_declares_nothing(wrong: object, tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    rows = [{"run": "r", "config": wrong, "algorithm": wrong, "task_reward": wrong, "aux_rewards": wrong}]
    rows += [{"step": i, "reward.task.mean": 0.5, "entropy.mean": 0.1} for i in range(3)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    log = read(path)
    assert log.roles.task == "reward.task.mean"
    assert len(list(log.rows)) == 3


def test_a_step_before_the_dict_is_taken(tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    line = "INFO \u2728 Global step {}: {{'policy_loss': 0.1, 'reward': {}, 'ppo_clip_ratio': 0.0, 'actor_grad_norm': np.float64(0.5)}}\n"
    path.write_text("".join(line.format(step, 0.25 * step) for step in (1, 2, 3)), "utf-8")
    log = read(path)
    assert log.framework.id == "openrlhf"
    assert [(row.step, row.values["reward.total.mean"], row.values["opt.grad_norm"]) for row in log.rows] == [
        (1, 0.25, 0.5),
        (2, 0.5, 0.5),
        (3, 0.75, 0.5),
    ]


def test_plain_names_are_known_in_any_case(tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    path.write_text("".join(f"12:00 Step {step} | Time: 35.1s | Reward: 0.{step} | Grad Norm: 2 | Loss: 0.1\n" for step in range(1, 5)))
    rows = list(read(path).rows)
    assert [(row.step, row.values["reward.total.mean"], row.values["opt.loss"]) for row in rows] == [(k, k / 10, 0.1) for k in range(1, 5)]


def test_a_table_of_several_runs_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "export.csv"
    path.write_text('"Step","a - reward","b - reward"\n0,1,2\n1,2,3\n')
    with pytest.raises(ReadError, match="holds 2 runs"):
        read(path)


def test_one_line_without_end_costs_bounded_memory(tmp_path: Path) -> None:
    import tracemalloc

    path = tmp_path / "huge.log"
    with path.open("wb") as handle:
        for _ in range(48):
            handle.write(b"x" * 2**20)
    tracemalloc.start()
    with pytest.raises(ReadError):
        read(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 40 * 2**20


def test_rows_are_read_as_they_are_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    with path.open("w") as handle:
        for step in range(20_000):
            handle.write(json.dumps({"step": step, "loss": 0.5, "reward": 0.25}) + "\n")
    import tracemalloc

    tracemalloc.start()
    count = sum(1 for _ in read(path).rows)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert count == 20_000
    assert peak < 4 * 2**20


def test_a_record_that_is_no_event_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "events.out.tfevents.1.a"
    path.write_bytes(event(0, {"reward": 0.5}) + frame(b"\x2a\xff"))
    with pytest.raises(ReadError, match="record 2"):
        list(read(path).rows)


def test_a_value_that_is_no_number_twice_is_no_conflict(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    records = [{"step": 1, "loss": "NaN", "reward": 0.5}, {"step": 1, "loss": "NaN", "entropy": 0.3}, {"step": 2, "loss": 0.1}]
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    log = read(path, trainer="plain")
    rows = list(log.rows)
    assert [(row.step, row.segment, len(row.values)) for row in rows] == [(1, 0, 3), (2, 0, 1)]
    assert not [note for note in log.notes if "again" in note]
