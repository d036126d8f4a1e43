"""The process in which candidates run: started as ``python -I -S sandbox_worker.py LIMITS``, it imports nothing of the project.

One JSON line in per candidate, one JSON line out, so that the parent knows which candidate was running when the process died. The layers, from
the outside: no file descriptor beyond the three pipes (no file, no socket), no file growth, no child process, a memory limit, a CPU timer whose
signal ends the process even inside a C loop, five harmless builtins, and (``strict``) a white list of syntax.
"""

import ast
import json
import os
import signal
import sys
import warnings
from types import CodeType
from typing import Any, TextIO

ALLOWED = (
    *(ast.Module, ast.Expression, ast.FunctionDef, ast.arguments, ast.arg, ast.Return, ast.If, ast.IfExp, ast.Assign, ast.Expr, ast.Constant),
    *(ast.Name, ast.Load, ast.Store, ast.Call, ast.BinOp, ast.Add, ast.Sub, ast.Mult, ast.UnaryOp, ast.USub, ast.Not, ast.BoolOp, ast.And),
    *(ast.Or, ast.Compare, ast.Eq, ast.NotEq, ast.Lt, ast.LtE, ast.Gt, ast.GtE, ast.Is, ast.IsNot, ast.In, ast.NotIn, ast.List, ast.Tuple),
)
BUILTINS = {"min": min, "max": max, "abs": abs, "len": len, "bool": bool}


def enclose(memory_bytes: int) -> tuple[TextIO, TextIO]:
    """Give up every right that a candidate could misuse. Works as root too, where a process limit alone would not bind."""
    import resource

    requests, answers = sys.stdin, sys.stdout
    vars(sys).update(stdin=None, stdout=None)
    if os.geteuid() == 0:
        os.setgroups([])
        os.setgid(65534)
        os.setuid(65534)
    for limit, value in (
        (resource.RLIMIT_NPROC, 0),
        (resource.RLIMIT_NOFILE, 3),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_AS, memory_bytes),
    ):
        try:
            resource.setrlimit(limit, (value, value))
        except (ValueError, OSError):
            if limit != resource.RLIMIT_AS:  # macOS does not limit address space; the CPU timer and the deadline still hold
                raise
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    return requests, answers


def compiled(text: str, mode: str, strict: bool) -> CodeType:
    tree: Any = ast.parse(text, mode=mode)
    if strict and not all(isinstance(node, ALLOWED) for node in ast.walk(tree)):
        raise SyntaxError("not in the white list")
    code: CodeType = compile(tree, "candidate", mode)
    return code


def judge(source: str, tests: list[str], strict: bool) -> str:
    """P, F or E for each test: passed, failed, raised."""
    space: dict[str, Any] = {"__builtins__": dict(BUILTINS) if strict else __builtins__}
    try:
        exec(compiled(source, "exec", strict), space)
    except BaseException:
        return "E" * len(tests)
    results = ""
    for test in tests:
        try:
            results += "P" if eval(compiled(test, "eval", strict), space) is True else "F"
        except BaseException:
            results += "E"
    return results


def main() -> None:
    memory_bytes, cpu_seconds = int(sys.argv[1]), float(sys.argv[2])
    warnings.simplefilter("ignore")
    requests, answers = enclose(memory_bytes)
    for line in requests:
        request = json.loads(line)
        signal.setitimer(signal.ITIMER_PROF, cpu_seconds)
        results = judge(request["source"], request["tests"], request["strict"])
        signal.setitimer(signal.ITIMER_PROF, 0)
        answers.write(json.dumps({"id": request["id"], "results": results}) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
