"""The rig of the hostile tests: the real program on a directory of its own, reached over HTTP.

Nothing here knows how the program is built. It is started as a user starts it, asked over its socket
or over loopback, and judged by its answers, its exit codes and its export.
"""

from __future__ import annotations

import http.client
import json
import os
import pathlib
import random
import re
import signal
import socket
import subprocess
import tempfile
import time
from typing import Any, Callable, Dict, List, NamedTuple, Optional, TypeVar

#: How long anything is waited for before it counts as not happening.
PATIENCE_SECONDS = 30.0

#: What a program that broke says of itself, in whatever language it was written.
_BROKEN = re.compile(r"panicked at|RUST_BACKTRACE|stack backtrace|Traceback|core dumped")

T = TypeVar("T")


class Options:
    """What the command line said; set once, before the first test."""

    #: What every random choice of a run follows from.
    seed = 0
    #: How long the kills go on.
    seconds = 50.0


class Lost(Exception):
    """No answer came, so nobody knows whether the request was carried out."""


class Ended(NamedTuple):
    """How a command ended."""

    code: int
    stdout: str
    stderr: str


class Answer(NamedTuple):
    """One HTTP answer."""

    status: int
    body: bytes

    def json(self) -> Any:
        """Its body as JSON; a list of objects where it is JSON lines."""
        return json.loads(self.body)

    def text(self) -> str:
        """Its body as text."""
        return self.body.decode("utf-8", "replace")


class NotStarted(Exception):
    """The server refused to start."""

    def __init__(self, ended: Ended) -> None:
        super().__init__(f"exit {ended.code}: {ended.stderr}")
        self.ended = ended


def random_of(name: str) -> random.Random:
    """The random choices of one part of a test; they follow from the seed and the name alone."""
    return random.Random(f"{Options.seed}/{name}")


def eventually(condition: Callable[[], T], seconds: float = PATIENCE_SECONDS) -> T:
    """What a condition gives once it gives something."""
    deadline = time.monotonic() + seconds
    while True:
        found = condition()
        if found:
            return found
        if time.monotonic() > deadline:
            raise AssertionError("it did not happen")
        time.sleep(0.01)


def broken(text: str) -> bool:
    """Whether a text shows a panic or a traceback."""
    return _BROKEN.search(text) is not None


def program() -> str:
    """The path of the program under test."""
    return os.environ["BURSAR_BIN"]


class House:
    """A home directory of its own, with the environment that keeps the program inside it."""

    def __init__(self) -> None:
        self._home = tempfile.TemporaryDirectory(prefix="bursar-hostile-")
        self.home = pathlib.Path(self._home.name)
        self.data = self.home / "data"
        #: Every server that was started here.
        self.started: List["Server"] = []
        self.environment = {
            "HOME": str(self.home),
            "XDG_RUNTIME_DIR": str(self.home / "run"),
            "XDG_DATA_HOME": str(self.home / "share"),
            "XDG_STATE_HOME": str(self.home / "state"),
            "XDG_CONFIG_HOME": str(self.home / "config"),
            "XDG_CACHE_HOME": str(self.home / "cache"),
            "BURSAR_NO_PROGRESS": "1",
            "PATH": os.environ.get("PATH", ""),
            "LANG": "C.UTF-8",
            "TZ": "UTC",
        }

    def __enter__(self) -> "House":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Stops what a failed test left running, and removes everything."""
        for server in self.started:
            server.end(signal.SIGINT)
        self._home.cleanup()

    def run(self, *words: str, environment: Optional[Dict[str, str]] = None) -> Ended:
        """Runs a command to its end."""
        ended = subprocess.run(
            [program(), *words],
            env={**self.environment, **(environment or {})},
            cwd=self.home,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=PATIENCE_SECONDS,
            check=False,
        )
        out, err = (part.decode("utf-8", "replace") for part in (ended.stdout, ended.stderr))
        if broken(err):
            raise AssertionError(f"`bursar {' '.join(words)}` broke: {err}")
        return Ended(ended.returncode, out, err)

    def ok(self, *words: str) -> str:
        """Runs a command that must succeed."""
        ended = self.run(*words)
        if ended.code != 0:
            raise AssertionError(f"`bursar {' '.join(words)}` exited {ended.code}: {ended.stderr}")
        return ended.stdout

    def up(self) -> "Server":
        """Starts a server on the data directory of this house, and waits until it is ready."""
        return Server(self).ready()


class Server:
    """A started `bursar up`; leaving its block stops it as Ctrl-C does."""

    def __init__(self, house: House) -> None:
        self.house = house
        self.log = house.home / "log"
        words = ["up", "--data", str(house.data), "--listen", "127.0.0.1:0", "-o", "json"]
        house.started.append(self)
        self._before = self.log.stat().st_size if self.log.exists() else 0
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(
                [program(), *words],
                env=house.environment,
                cwd=house.home,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
            )
        self.address = ""
        self.socket = str(house.data / "api.sock")

    def ready(self) -> "Server":
        """Waits until it says that it is ready; raises `NotStarted` if it ends instead."""
        assert self.process.stdout is not None
        said = self.process.stdout.readline()
        if not said:
            self.process.stdout.close()
            code = self.process.wait(PATIENCE_SECONDS)
            raise NotStarted(Ended(code, "", self.said()))
        self.address = json.loads(said)["server"].split("//")[1]
        return self

    def __enter__(self) -> "Server":
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def said(self) -> str:
        """What this server has written to its log."""
        with open(self.log, "rb") as log:
            log.seek(self._before)
            return log.read().decode("utf-8", "replace")

    def kill(self) -> None:
        """Ends it without any warning."""
        self.end(signal.SIGKILL)

    def stop(self) -> None:
        """Ends it as Ctrl-C does; a second call has no effect."""
        self.end(signal.SIGINT)
        if broken(self.said()):
            raise AssertionError(f"the server broke: {self.said()}")

    def end(self, how: signal.Signals) -> None:
        """Ends it by a signal, if it still runs."""
        assert self.process.stdout is not None
        if self.process.poll() is None:
            self.process.send_signal(how)
            try:
                self.process.wait(PATIENCE_SECONDS)
            finally:
                self.process.kill()
                self.process.wait()
        self.process.stdout.close()

    def ask(self, method: str, path: str, body: Any = None, **options: Any) -> Answer:
        """Asks over the socket, where this user operates the server; see `ask`."""
        return ask(self.socket, method, path, body, **options)

    def ask_tcp(self, method: str, path: str, body: Any = None, **options: Any) -> Answer:
        """Asks over loopback, as the bearer of a token or as nobody; see `ask`."""
        return ask(self.address, method, path, body, **options)

    def must(self, method: str, path: str, body: Any = None, **options: Any) -> Any:
        """Asks over the socket for something that must be done."""
        answer = self.ask(method, path, body, **options)
        if answer.status >= 300:
            raise AssertionError(f"{method} {path}: {answer.status} {answer.text()}")
        return answer.json()

    def command(self, *words: str) -> Ended:
        """Runs a command against this server."""
        return self.house.run(*words, "--server", f"unix:{self.socket}")

    def export(self, name: str) -> pathlib.Path:
        """Writes an export to a file, as an operator does."""
        path = self.house.home / name
        ended = self.command("ledger", "export", "--out", str(path))
        if ended.code != 0:
            raise AssertionError(f"no export: {ended.stderr}")
        return path

    def token(self, name: str, role: str, tenants: List[str]) -> str:
        """Makes a token and gives its secret."""
        body = {"name": name, "roles": [role], "tenants": tenants}
        secret: str = self.must("POST", "/v1/tokens", body)["secret"]
        return secret


class _SocketConnection(http.client.HTTPConnection):
    """HTTP over a Unix socket."""

    def __init__(self, path: str, timeout: float) -> None:
        super().__init__("localhost", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


def connect(target: str, timeout: float = PATIENCE_SECONDS) -> http.client.HTTPConnection:
    """A connection to a socket (a path) or to an address and port."""
    if target.startswith("/"):
        return _SocketConnection(target, timeout)
    return http.client.HTTPConnection(target, timeout=timeout)


def ask(
    target: str,
    method: str,
    path: str,
    body: Any = None,
    *,
    token: Optional[str] = None,
    headers: Optional[Dict[str, str]] = None,
    timeout: float = PATIENCE_SECONDS,
) -> Answer:
    """One request on a connection of its own; raises `Lost` if no whole answer came."""
    sent = dict(headers or {})
    if token is not None:
        sent["Authorization"] = f"Bearer {token}"
    data = None if body is None else json.dumps(body).encode()
    connection = connect(target, timeout)
    try:
        connection.request(method, path, body=data, headers=sent)
        response = connection.getresponse()
        return Answer(response.status, response.read())
    except (OSError, http.client.HTTPException) as error:
        raise Lost(f"{method} {path}: {error!r}") from error
    finally:
        connection.close()


def limit(name: str, **spec: Any) -> Dict[str, Any]:
    """A declared limit, as `PUT /v1/limits/{name}` takes it."""
    metadata = {"name": name}
    return {
        "apiVersion": "bursar.dev/v1alpha1",
        "kind": "Limit",
        "metadata": metadata,
        "spec": spec,
    }
