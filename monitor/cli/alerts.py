"""``vitals alerts``: what is wrong now, and what somebody does about it, in a terminal."""

from __future__ import annotations

import argparse
import getpass
import json
import time
import urllib.parse
from typing import Any

from monitor.cli.collector import Collector, add_url
from monitor.cli.errors import CommandError
from monitor.cli.parsers import command

MATCHABLE = ("project", "run", "detector", "organ", "tag")
EVERY_S = 1.0
"""How often ``--follow`` asks."""


def add_parser(commands: Any) -> None:
    parser = command(
        commands,
        "alerts",
        "List incidents, follow alerts as they change, and act on them.",
        """
vitals alerts                                        # what is open now
vitals alerts --follow --json | jq .title            # every change from now on, one JSON object a line
vitals alerts acknowledge 5f93ffe5 -m "on it"        # the first characters of the incident's id will do
vitals alerts resolve 5f93ffe5 -m "lr halved"        # closes it until its condition was gone, or gets worse
vitals alerts mark 5f93ffe5 false -m "eval rows"     # a true or a false alarm
vitals alerts silence --project math --for 2h -m "cluster moves" """,
        run,
    )
    parser.add_argument("verb", nargs="?", choices=("acknowledge", "resolve", "comment", "mark", "silence"), help="what to do; nothing: list")
    parser.add_argument("incident", nargs="?", help="the incident's id or its first characters")
    parser.add_argument("verdict", nargs="?", choices=("true", "false"), help="for mark: was the alarm true?")
    parser.add_argument("-m", "--message", default="", metavar="TEXT", help="what you have to say")
    parser.add_argument("--author", default=None, help="who you are (the user's name if not given)")
    parser.add_argument("--all", action="store_true", help="list resolved incidents too")
    parser.add_argument("--follow", action="store_true", help="print changes until Ctrl-C")
    parser.add_argument("--json", action="store_true", help="one JSON object per line")
    for name in MATCHABLE:
        help_text = "only this project; for silence: the project" if name == "project" else f"for silence: the {name}"
        parser.add_argument(f"--{name}", dest=f"of_{name}", default="", metavar="PATTERN", help=help_text)
    parser.add_argument("--for", dest="span", default="1h", metavar="TIME", help="for silence: how long, such as 30m, 2h or 1d")
    add_url(parser)


def run(arguments: argparse.Namespace) -> int:
    collector = Collector(arguments.url)
    if arguments.verb == "silence":
        return _silence(collector, arguments)
    if arguments.verb is not None:
        return _act(collector, arguments)
    if arguments.follow:
        return _follow(collector, arguments.json)
    shown = collector.ask("GET", "/incidents?" + urllib.parse.urlencode({"project": arguments.of_project, "limit": 1000}))
    shown = [each for each in shown if arguments.all or each["state"] != "resolved"]
    for each in shown:
        print(json.dumps(each) if arguments.json else _line(each))
    if not arguments.json:
        if not shown:
            print("nothing is open" if not arguments.all else "there was no incident yet")
        for line in _silences(collector.ask("GET", "/presence"), arguments.of_project):
            print(line)
    return 0


def _find(collector: Collector, beginning: str) -> str:
    """The id of the one incident that begins so. Raises CommandError."""
    fitting = [each["uid"] for each in collector.ask("GET", "/incidents?limit=1000") if beginning and each["uid"].startswith(beginning.lower())]
    if len(fitting) == 1:
        return str(fitting[0])
    raise CommandError(f"{len(fitting) or 'no'} incidents begin with {beginning!r}; `vitals alerts --all` lists them")


def _act(collector: Collector, arguments: argparse.Namespace) -> int:
    if arguments.incident is None:
        raise CommandError(f"name the incident to {arguments.verb}; `vitals alerts` lists them")
    body = {"author": arguments.author or getpass.getuser(), "text": arguments.message}
    if arguments.verb == "mark":
        if arguments.verdict is None:
            raise CommandError("say true or false after the incident: was the alarm a true one?")
        body["verdict"] = arguments.verdict
    done = collector.ask("POST", f"/incidents/{_find(collector, arguments.incident)}/{arguments.verb}", body)
    print(json.dumps(done) if arguments.json else _line(done))
    return 0


def _silence(collector: Collector, arguments: argparse.Namespace) -> int:
    matcher = {name: pattern for name in MATCHABLE if (pattern := getattr(arguments, f"of_{name}"))}
    if not arguments.message:
        raise CommandError("say why with -m, so that others know")
    said = {"matcher": matcher, "until": time.time() + seconds(arguments.span), "reason": arguments.message}
    made = collector.ask("POST", "/silences", {**said, "author": arguments.author or getpass.getuser()})
    print(json.dumps(made) if arguments.json else f"silence {made['id']} for {arguments.span}")
    return 0


def seconds(span: str) -> float:
    """``30m``, ``2h``, ``1d`` or ``90s`` in seconds. Raises CommandError."""
    units = {"s": 1, "m": 60, "h": 3600, "d": 86400}
    try:
        amount = float(span[:-1]) * units[span[-1:]]
    except (ValueError, KeyError):
        amount = 0.0
    if not 0 < amount < 1e9:
        raise CommandError(f"--for {span!r} is no length of time; write 30m, 2h or 1d")
    return amount


def _follow(collector: Collector, as_json: bool) -> int:
    """Prints changes from now on. A collector that goes away for a while costs nothing: the cursor is kept."""
    cursor, begun = "", False
    while True:
        try:
            answer = collector.ask("GET", "/transitions?" + urllib.parse.urlencode({"after": cursor, "limit": 1000}))
        except CommandError:
            if not begun:
                raise
            time.sleep(EVERY_S)
            continue
        moved, cursor = answer["transitions"], answer["cursor"]
        for each in moved if begun else ():
            print(json.dumps(each) if as_json else _change(each), flush=True)
        begun = begun or len(moved) < 1000
        if len(moved) < 1000:
            time.sleep(EVERY_S)


def _silences(told: dict[str, Any], project: str) -> list[str]:
    """Silence that is no alarm: what runs have announced, and when nobody was looking."""

    def clock(at: float) -> str:
        return time.strftime("%a %H:%M", time.localtime(at))

    lines = []
    for each in told["announced"]:
        if not project or each["project"] == project:
            until = f"until {clock(each['until'])}" if each["until"] else "until its next row"
            lines.append(f"{'quiet':<8}  {each['project']} / {each['run_name']}: {each['why'] or 'announced'}; silence is expected {until}")
    for each in told["blind"]:
        lines.append(
            f"{'blind':<8}  from {clock(each['from_at'])} to {clock(each['to_at'])} the {each['component']} was down; silence then is no alarm"
        )
    return lines


def _line(incident: dict[str, Any]) -> str:
    also = len(incident["alerts"]) - 1
    more = f" (and {also} more)" if also > 0 else ""
    by = f" by {incident['acknowledged_by']}" if incident["state"] == "acknowledged" else ""
    where = f"{incident['project']} / {incident['run_name']}, step {incident['opened_step']:,}"
    return f"{incident['uid'][:8]}  {incident['severity']:<8}  {incident['state']}{by}  {where}: {incident['lead']}{more}"


def _change(moved: dict[str, Any]) -> str:
    at = time.strftime("%H:%M:%S", time.localtime(moved["at"]))
    muted = f"  [{moved['muted']}]" if moved["muted"] else ""
    return f"{at}  {moved['from_state']} -> {moved['to_state']}  {moved['project']} / {moved['run']}, step {moved['step']:,}: {moved['title']}{muted}"
