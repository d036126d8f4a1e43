"""A collector with its pages, served by uvicorn on a free port from a thread of its own, and a worker beside it on demand."""

from __future__ import annotations

import asyncio
import json
import threading
import time
import urllib.request
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import uvicorn
from sqlalchemy import Executable

from dashboards.app import attach
from monitor.api import app
from monitor.deliver.channel import Channel
from monitor.settings import Settings
from monitor.store import database
from monitor.wire import to_json
from monitor.worker import Worker


def in_own_loop(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Runs a coroutine to its end in a thread: Playwright keeps a loop running in this one."""
    with ThreadPoolExecutor(1) as pool:
        pool.submit(lambda: asyncio.run(work())).result()


class Site:
    """``with Site(database_url) as site: site.post(...)``; ``stop()`` and ``start()`` again keep the port. ``settings`` are the collector's."""

    def __init__(self, database_url: str, **settings: Any) -> None:
        self.database_url = database_url
        self.settings = settings
        self.port = 0

    def __enter__(self) -> Site:
        self.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        settings = Settings(port=self.port, **self.settings)
        engine = database.create_engine(self.database_url, pool_size=4)
        api = app.build(settings, engine)
        attach(api, engine, settings)
        self._server = uvicorn.Server(uvicorn.Config(api, port=self.port, log_level="warning", access_log=False, timeout_graceful_shutdown=1))
        self._thread = threading.Thread(target=self._server.run, daemon=True)
        self._thread.start()
        while not self._server.started:
            time.sleep(0.02)
            assert self._thread.is_alive(), "the server did not start"
        self.port = self._server.servers[0].sockets[0].getsockname()[1]

    def stop(self) -> None:
        self._server.should_exit = True
        self._thread.join(15)

    def post(self, path: str, message: Any) -> None:
        """Sends one message of :mod:`monitor.wire`."""
        request = urllib.request.Request(f"{self.url}/api/v1/{path}", to_json(message), {"Content-Type": "application/json", **self._key()})
        with urllib.request.urlopen(request) as answer:
            assert answer.status < 300

    def get(self, path: str) -> Any:
        """What a read route answers."""
        with urllib.request.urlopen(urllib.request.Request(f"{self.url}/api/v1/{path}", headers=self._key())) as answer:
            return json.load(answer)

    def _key(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {token}"} if (token := self.settings.get("token")) else {}

    def incident(self, run: str) -> str:
        """The path of the page of a run's newest incident."""
        return f"/incident/{self.get(f'incidents?run={run}')[0]['uid']}"

    def change(self, *statements: Executable) -> None:
        """Changes the database behind the collector's back."""

        async def work() -> None:
            async with database.opened(self.database_url) as engine, engine.begin() as conn:
                for each in statements:
                    await conn.execute(each)

        in_own_loop(work)

    def judge(self, channels: Sequence[Channel] = ()) -> None:
        """Judges everything that has arrived and delivers everything that is due."""

        async def work() -> None:
            async with database.opened(self.database_url) as engine:
                worker = Worker(engine, channels)
                while await worker.evaluate():
                    pass
                for channel in channels:
                    while await worker.deliver(channel):
                        pass
                    await channel.close()

        in_own_loop(work)
