"""Everything on one machine: embedded Postgres (unless a database is given), collector with dashboards, worker."""

from __future__ import annotations

import asyncio
import fcntl
import http.client
import json
import socket
import sys
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from monitor.cli.errors import CommandError
from monitor.cli.supervisor import Process, Supervisor

if TYPE_CHECKING:
    from monitor.settings import Settings
    from monitor.store.embedded import Server


def load_settings(**overrides: Any) -> Settings:
    """The settings of the environment and ``overrides``. Raises CommandError."""
    from monitor import settings

    try:
        return settings.load(**overrides)
    except settings.SettingsError as error:
        raise CommandError(str(error)) from None


def require_free_port(host: str, port: int) -> None:
    """Raises CommandError when something already listens there or the address is not this machine's."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            raise CommandError(f"cannot listen on {host} port {port} ({error.strerror}); stop what uses it or choose another with --port") from None


def free_port(host: str, first: int, tries: int = 50) -> int:
    """The first port from ``first`` on that nothing listens on. Raises CommandError when none of ``tries`` is free.

    ``first`` should be below the system's range for outgoing connections (32768 on Linux): within it a client that asks again and again
    while nothing listens can be given the very port it asks for, and TCP connects it to itself.
    """
    for port in range(first, first + tries):
        with suppress(CommandError):
            require_free_port(host, port)
            return port
    raise CommandError(f"no port from {first} to {first + tries - 1} is free on {host}; choose one with --port")


class Database:
    """The embedded Postgres as a part of the stack."""

    name = "Postgres"

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._server: Server | None = None

    @property
    def url(self) -> str:
        assert self._server is not None
        return self._server.url

    def spawn(self) -> None:
        from monitor.store import embedded

        try:
            self._server = embedded.start(self._folder)
        except embedded.EmbeddedError as error:
            raise CommandError(str(error)) from None

    def running(self) -> bool:
        """Whether a server, ours or another process's, already runs in the folder."""
        from monitor.store import embedded

        try:
            return embedded.running_pid(self._folder) is not None
        except embedded.EmbeddedError as error:
            raise CommandError(str(error)) from None

    def wait_ready(self) -> None:
        pass  # embedded.start returns once the server takes connections

    def alive(self) -> bool:
        return self._server is not None and self._server.alive()

    @property
    def pid(self) -> int | None:
        return self._server.pid if self._server is not None else None

    def last_words(self) -> str:
        return f"its log is {self._folder / 'postgres.log'}"

    def stop(self) -> None:
        if self._server is not None:
            self._server.stop()


def migrate_now(url: str) -> str:
    """Bring the database at ``url`` up to date; returns its revision. Raises CommandError."""
    from monitor.store import database

    try:
        return asyncio.run(database.migrate(url))
    except database.DatabaseError as error:
        raise CommandError(str(error)) from None


def database_url(settings: Settings) -> str:
    """The address of the database: the one given, or the embedded server's in the data folder. Raises CommandError."""
    from monitor.store import embedded

    if settings.database_url is not None:
        return settings.database_url.get_secret_value()
    try:
        return embedded.cluster(settings.data_dir).url
    except embedded.EmbeddedError as error:
        raise CommandError(str(error)) from None


def require_database(settings: Settings) -> None:
    """Raises CommandError unless the database answers and its schema is this program's."""
    from monitor.store import database

    async def check(url: str) -> None:
        async with database.opened(url) as engine:
            await database.require_current(engine)

    try:
        asyncio.run(check(database_url(settings)))
    except database.DatabaseError as error:
        raise CommandError(str(error)) from None


def require_worker_settings(settings: Settings) -> None:
    """Raises CommandError when a channel or the rules file that the worker would use is wrong."""
    from monitor.settings import SettingsError, channels, rules

    try:
        channels(settings, rules(settings))
    except SettingsError as error:
        raise CommandError(str(error)) from None


@contextmanager
def only_one(folder: Path) -> Iterator[None]:
    """Holds ``folder`` for one supervisor: two would start and stop each other's Postgres. Raises CommandError."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = (folder / ".supervisor").open("a")
    except OSError as error:
        raise CommandError(
            f"cannot write in the data folder {folder} ({error.strerror}); choose another with --data-dir or VITALS_DATA_DIR"
        ) from None
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise CommandError(
                f"another `vitals up` or `vitals demo` already runs in {folder}; stop it or choose another folder with --data-dir"
            ) from None
        yield


def start_stack(supervisor: Supervisor, settings: Settings, say: Callable[[str], None], environment: Mapping[str, str] | None = None) -> str:
    """Start every part in order; returns the dashboards' address. ``environment`` reaches the collector and the worker. Raises CommandError."""
    require_free_port(settings.host, settings.port)
    require_worker_settings(settings)
    if settings.database_url is None:
        say(f"Postgres: starting in {settings.data_dir} (the first start takes a few seconds)")
        supervisor.start(Database(settings.data_dir))
    url = database_url(settings)
    say(f"database: at revision {migrate_now(url)}")
    variables = {"VITALS_DATABASE_URL": url, "VITALS_PORT": str(settings.port), "VITALS_HOST": settings.host, **(environment or {})}
    logs = settings.data_dir / "logs"
    vitals = [sys.executable, "-m", "monitor.cli"]
    address = f"http://{'127.0.0.1' if settings.host in ('0.0.0.0', '::') else settings.host}:{settings.port}"
    supervisor.start(Process("collector and dashboards", [*vitals, "serve"], logs / "collector.log", lambda: answers(address), variables))
    worker = Process("worker", [*vitals, "work"], logs / "worker.log", lambda: True, variables)
    supervisor.start(worker)
    return settings.url


def answers(address: str) -> bool:
    """Whether the collector at ``address`` is up and reaches its database."""
    try:
        return bool(get_json(f"{address}/healthz", timeout=1))
    except (OSError, ValueError):
        return False


def get_json(url: str, timeout: float = 5, token: str | None = None, method: str = "GET", body: Any = None) -> Any:
    """Ask ``url``, with ``body`` as JSON unless None, and read JSON. Raises OSError (connection, HTTP status, not HTTP) and ValueError (not JSON)."""
    data = None if body is None else json.dumps(body).encode()
    headers = ({"Authorization": f"Bearer {token}"} if token else {}) | ({} if data is None else {"Content-Type": "application/json"})
    request = urllib.request.Request(url, data, headers, method=method)
    try:
        with urllib.request.urlopen(request, timeout=timeout) as answer:
            return json.load(answer)
    except http.client.HTTPException as error:
        raise ConnectionError(f"what listens there does not speak HTTP: {error!r}") from None
