"""Writes the generated pages of this folder: ``python -m docs.generate``. A test fails when one is stale."""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from monitor import metrics
from monitor.adapters import names
from monitor.alerts import channel_table
from monitor.alerts.route_table import read_route
from monitor.cli import COMMANDS, parser
from monitor.deliver.schema import SCHEMA
from monitor.detect import document
from monitor.settings import Settings

HERE = Path(__file__).parent


def metrics_page() -> str:
    """The catalogue, organ by organ."""
    lines = ["# Metrics", "", (metrics.__doc__ or "").split("\n", 2)[2].strip().replace("``", "`"), ""]
    templates = [template for _, template in metrics.FAMILIES]
    for organ in metrics.ORGANS:
        rows = [metric for metric in (*metrics.CATALOGUE, *templates) if metric.organ == organ]
        if rows:
            lines += [f"## {organ}", "", "| name | meaning | unit | range | one number per batch by |", "|---|---|---|---|---|"]
            lines += [f"| `{m.name.replace('{part}', 'NAME')}` | {_plain(m.formula)} | {m.unit} | {_range(m)} | {m.aggregate} |" for m in rows]
            lines.append("")
    lines += ["## Histograms", "", "Fixed bins, the same for every run, so that steps and runs add up bin by bin.", ""]
    lines += ["| name | unit | bins | inner edges |", "|---|---|---|---|"]
    lines += [f"| `{h.name}` | {h.unit} | {h.bins} | {h.edges[0]:g} to {h.edges[-1]:g} |" for h in metrics.HISTOGRAMS]
    return "\n".join(lines) + "\n"


def _plain(text: str) -> str:
    return text.replace("|", "\\|")


def _range(metric: metrics.Metric) -> str:
    low = "(-inf" if math.isinf(metric.low) else f"[{metric.low:g}"
    high = "inf)" if math.isinf(metric.high) else f"{metric.high:g}]"
    return f"{low}, {high}"


def commands_page() -> str:
    """The help of every command."""
    pages = ["# Commands", "", "`vitals COMMAND --help` prints the same.", ""]
    for name in COMMANDS:
        pages += [f"## vitals {name}", "", "```text", _help(name), "```", ""]
    return "\n".join(pages)


def _help(name: str) -> str:
    os.environ["COLUMNS"] = "110"
    shown = io.StringIO()
    with contextlib.redirect_stdout(shown), contextlib.suppress(SystemExit):
        parser().parse_args([name, "--help"])
    return shown.getvalue().strip()


def settings_page() -> str:
    """Every environment variable."""
    lines = ["# Settings", "", "Environment variables, read by `vitals up`, `serve`, `work` and `migrate`.", ""]
    lines += ["| variable | default |", "|---|---|"]
    for name, field in Settings.model_fields.items():
        default = "the user's data folder" if name == "data_dir" else field.get_default()
        lines.append(f"| `VITALS_{name.upper()}` | {'-' if default is None else default} |")
    about = (Settings.__doc__ or "").split("\n", 1)[1]
    lines += ["", *(line.strip().replace("``", "`") for line in about.strip().splitlines())]
    return "\n".join([*lines, "", *_channels(), "", *_routes()]) + "\n"


def _channels() -> list[str]:
    """The ``[channel.NAME]`` tables of ``vitals.toml``."""
    example = "\n\n".join((channel_table.__doc__ or "").split("\n\n")[1:-1])
    lines = [
        "## Channels in vitals.toml",
        "",
        "Beside the channels `slack` and `webhook` of the environment, each table `[channel.NAME]` is one more.",
        "",
    ]
    lines += ["```toml", *(line.removeprefix("    ") for line in example.splitlines()), "```", ""]
    lines += [
        "A secret is never in the file: `url_env` names the environment variable that holds it, `url_file` a file, sought from where",
        "`vitals.toml` is.",
        '`interval` (`"1s"`) is the least time between two messages; when more than ten wait for a channel that has one, a digest replaces them.',
        "`vitals channel test NAME` sends a message that is clearly a test.",
        "",
        "| kind | secrets | other keys |",
        "|---|---|---|",
    ]
    for name, kind in channel_table.KINDS.items():
        secrets = ", ".join(f"`{each}`{'' if needed else ' (optional)'}" for each, needed in kind.secrets.items())
        keys = "; ".join(f"`{key}`: {option.words}{'' if option.required else ' (optional)'}" for key, option in kind.options.items())
        lines.append(f"| `{name}` | {secrets} | {keys} |")
    return lines


def _routes() -> list[str]:
    about = (read_route.__doc__ or "").split("\n\n", 1)[1]
    text = " ".join(about.replace("``", "`").split())
    return ["## Routes", "", "Without a `[[route]]` every channel is told of every alarm; with some, those of each that fits.", "", text]


def names_page() -> str:
    """What the readers make of each trainer's metric names."""
    lines = [
        "# Metric names of trainers",
        "",
        "What the readers make of each name ([readers.md](readers.md)). The first row that fits a name counts.",
        "",
    ]
    for found in names.frameworks():
        if not found.own:
            continue
        lines += [f"## {found.title}", "", f"Read from version {found.version}. {_recognised(found)}", ""]
        lines += ["| name in the log | metric | care |", "|---|---|---|"]
        for rule in found.own:
            metric = "kept as it is" if rule.name == "-" else f"`{rule.name}`"
            metric += f" = {rule.transform}" if rule.transform else ""
            care = [rule.caveat] if rule.caveat else []
            care += [f"{rule.missing:g} stands for none"] if rule.missing is not None and "stands for" not in rule.caveat else []
            lines.append(f"| `{_plain(rule.key)}` | {metric} | {'; '.join(care)} |")
        lines.append("")
    return "\n".join(lines)


def _recognised(found: names.Framework) -> str:
    base = f"It has the names of {names.framework(found.base).title} as well. " if found.base else ""
    return base + (f"The prefix `{found.strip}` is taken off." if found.strip else "")


_WEBHOOK = '''\
# The webhook

Each change of an alert is one POST with a JSON body, signed after [Standard Webhooks](https://www.standardwebhooks.com). Answer with any status of
2xx within 10 seconds; every other answer is tried again, but for 400, 413, 415 and 422, which refuse this one message for good.

| header | |
|---|---|
| `webhook-id` | the same on every attempt: drop what you have seen |
| `webhook-timestamp` | Unix seconds of the attempt |
| `webhook-signature` | with a secret only (`VITALS_WEBHOOK_SECRET`, or `secret_env` of a channel) |

## Verify it

With the package `standardwebhooks`; the raw body, not the parsed one, is what was signed:

```python
from standardwebhooks.webhooks import Webhook, WebhookVerificationError


def verified(secret: str, body: bytes, headers: dict[str, str]) -> dict:
    """The JSON object of a request whose signature is ours and not older than five minutes. ValueError for any other."""
    try:
        return Webhook(secret).verify(body, {name.lower(): value for name, value in headers.items()})
    except WebhookVerificationError as error:
        raise ValueError("not from rlvitals") from error
```

Numbers that are not finite are the strings `"NaN"`, `"Infinity"` and `"-Infinity"`.

## For receivers of Alertmanager

`format = "alertmanager"` in a `[channel.NAME]` table of `vitals.toml` posts what Alertmanager posts to its webhooks (version 4) instead: labels
`alertname` (the detector), `severity`, `project`, `run`, `run_name` and `organ`, grouped by incident.

'''


def webhook_page() -> str:
    """How to receive alerts, with the schema of the body."""
    lines = [_WEBHOOK]
    for event in SCHEMA["oneOf"]:
        kind = event["properties"]["type"]
        lines += [
            f"## {event['title'].split(';')[0]}",
            "",
            f"`type` is {' or '.join(f'`{each}`' for each in kind.get('enum', [kind.get('const')]))}.",
            "",
        ]
        lines += ["| `data.` | type | meaning |", "|---|---|---|"]
        for name, field in event["properties"]["data"]["properties"].items():
            lines.append(f"| `{name}` | {_type(field)} | {_plain(field.get('description', ''))} |")
        lines.append("")
    return "\n".join([*lines, "## JSON Schema", "", "```json", json.dumps(SCHEMA, indent=1), "```", ""])


def _type(field: dict[str, Any]) -> str:
    if "oneOf" in field:
        return " or ".join(_type(each) for each in field["oneOf"])
    if "enum" in field:
        return ", ".join(f"`{each}`" for each in field["enum"])
    return f"list of {_type(field['items'])}s" if field["type"] == "array" else str(field["type"])


PAGES: dict[str, Callable[[], str]] = {
    "metrics.md": metrics_page,
    "names.md": names_page,
    "detectors.md": document.render,
    "commands.md": commands_page,
    "settings.md": settings_page,
    "webhook.md": webhook_page,
}


def main() -> None:
    argparse.ArgumentParser(description=__doc__).parse_args()
    for name, page in PAGES.items():
        (HERE / name).write_text(page())
        print(f"docs/{name}")


if __name__ == "__main__":
    main()
