"""``vitals serve``: collector and dashboards in one process, or one of the two."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from monitor.cli import stack
from monitor.cli.parsers import command
from monitor.cli.up import add_address

if TYPE_CHECKING:
    from fastapi import FastAPI

    from monitor.settings import Settings


def add_parser(commands: Any) -> None:
    parser = command(
        commands,
        "serve",
        "Run the collector and the dashboards against an existing database.",
        """
VITALS_DATABASE_URL=postgresql://me@db/vitals vitals serve
vitals serve --role collector --port 8901      # takes data, shows no pages; any number may run
vitals serve --role web                        # shows pages, takes no data""",
        run,
    )
    add_address(parser)
    parser.add_argument("--role", choices=("all", "collector", "web"), help="what this process does (VITALS_ROLE; all if not given)")


def application(settings: Settings) -> FastAPI:
    """The application of ``settings.role``: the one place where API and dashboards meet. Raises CommandError."""
    from monitor.api import app
    from monitor.store import database

    engine, reading = (database.create_engine(stack.database_url(settings), application=name) for name in ("rlvitals", "rlvitals pages"))
    api = app.build(settings, engine, reading)
    if settings.role != "collector":
        import dashboards.app

        dashboards.app.attach(api, reading, settings)
    return api


def run(arguments: argparse.Namespace) -> int:
    import uvicorn

    settings = stack.load_settings(host=arguments.host, port=arguments.port, role=arguments.role)
    stack.require_free_port(settings.host, settings.port)
    stack.require_database(settings)
    uvicorn.run(application(settings), host=settings.host, port=settings.port, log_level="warning", access_log=False, timeout_graceful_shutdown=5)
    return 0
