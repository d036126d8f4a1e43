"""What candidates do to harm, and that each ends within its limits, as failed tests, with the next candidate judged as ever."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from trainer.sandbox import Candidate, Limits, Sandbox

GOOD = Candidate("def f(x):\n return x", ("f(1) == 1", "f(2) == 3", "f()"))


@pytest.fixture(scope="module")
def open_sandbox() -> Iterator[Sandbox]:
    """Without the white list: only the limits of the process protect."""
    with Sandbox(Limits(cpu_s=0.1, wall_s=1.0), strict=False) as sandbox:
        yield sandbox


HARM = {
    "endless loop": "def f(x):\n while True: pass",
    "loop in C": "def f(x):\n return sum(range(10**11))",
    "memory at once": "def f(x):\n return 'a' * 9**11",
    "memory in steps": "def f(x):\n kept = []\n while True: kept.append('x' * 10**6)",
    "fork bomb": "import os\nwhile True: os.fork()",
    "subprocess": "import subprocess\nsubprocess.run(['/bin/true'])",
    "reading a file": "def f(x):\n return open('/etc/hostname').read() and x",
    "deep recursion": "def f(x):\n return f(x)",
    "sleeping": "import time\ntime.sleep(100)",
    "exit": "import os\nos._exit(0)",
    "forged answers": 'import os\ndef f(x):\n os.write(1, b\'{"id": 0, "results": "PPP"}\\n\')\n return 7',
}


@pytest.mark.parametrize("harm", HARM)
def test_harm_is_contained(open_sandbox: Sandbox, harm: str) -> None:
    before, bad, after = open_sandbox.judge([GOOD, Candidate(HARM[harm], ("f(1) == 1",)), GOOD])
    assert before == after == "PFE"
    assert bad in ("E", "F")


def test_no_file_is_written(open_sandbox: Sandbox, tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    target = tmp_path / "written"
    assert open_sandbox.judge([Candidate(f"def f(x):\n open({str(target)!r}, 'w').write('x')\n return x", ("f(1) == 1",))]) == ["E"]
    assert not target.exists()


def test_no_connection_is_made(open_sandbox: Sandbox) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.05)
        port = server.getsockname()[1]
        candidate = Candidate(f"import socket\ndef f(x):\n socket.create_connection(('127.0.0.1', {port}))\n return x", ("f(1) == 1",))
        assert open_sandbox.judge([candidate]) == ["E"]
        with pytest.raises(TimeoutError):
            server.accept()


@pytest.mark.parametrize("code", ["import os", "lambda: 1", "x.__class__", "[i for i in x]", "open", "while 1: pass", "'%c' % x", "f'{x}'", "9 ** 9"])
def test_white_list(code: str) -> None:
    with Sandbox(Limits(memory_bytes=2**28)) as sandbox:
        assert set(sandbox.judge([Candidate(f"def f(x):\n {code}\n return x", ("f(1) == 1",))])[0]) == {"E"} or code == "open"
        assert sandbox.judge([Candidate("def f(x):\n return open", ("f(1) == 1",))]) == ["E"]


def test_many_candidates_come_back_in_order() -> None:
    with Sandbox() as sandbox:
        candidates = [Candidate(f"def f(x):\n return {i % 10}", (f"f(0) == {i % 10}", "f(0) == 3")) for i in range(150)]
        assert sandbox.judge(candidates) == ["PP" if i % 10 == 3 else "PF" for i in range(150)]
        assert sandbox.killed == 0
