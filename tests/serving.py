"""A collector in a thread of the test's process, on a real socket."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import uvicorn


@contextlib.contextmanager
def serving(database_url: str, **settings: Any) -> Iterator[str]:
    """The address of a collector on ``database_url``, up when the block begins and gone when it ends."""
    from monitor.api import app
    from monitor.settings import load
    from monitor.store import database

    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
        api = app.build(load(port=port, **settings), database.create_engine(database_url, pool_size=4))
        server = uvicorn.Server(uvicorn.Config(api, log_level="error", timeout_graceful_shutdown=2))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            while not server.started:
                assert thread.is_alive()
                time.sleep(0.01)
            yield f"http://127.0.0.1:{port}"
        finally:
            server.should_exit = True
            thread.join(20)
