"""The rig of the hostile tests: the real program in its own directory, called over HTTP.

Nothing here depends on our code. The program is started as a user starts it, called over its socket or
over loopback, and judged by its answers, its exit codes and its export.
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
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, TypeVar

#: Time limit of every wait.
TIMEOUT_SECONDS = 30.0

#: Signs of a crash in the output of a program.
_CRASHED = re.compile(r"panicked at|RUST_BACKTRACE|stack backtrace|Traceback|core dumped")

T = TypeVar("T")


class Options:
    """Options of the command line; set once, before the first test."""

    #: Seed of every random choice.
    seed = 0
    #: Duration of the kills.
    seconds = 50.0


class NoAnswer(Exception):
    """No answer came, so the outcome of the request is unknown."""


class Ended(NamedTuple):
    """Result of a command."""

    code: int
    stdout: str
    stderr: str


class Answer(NamedTuple):
    """One HTTP answer."""

    status: int
    body: bytes

    def json(self) -> Any:
        """Its body as JSON."""
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
    """Random choices of one part of a test, determined by the seed and the name."""
    return random.Random(f"{Options.seed}/{name}")


def eventually(condition: Callable[[], T], seconds: float = TIMEOUT_SECONDS) -> T:
    """Waits until a condition returns a true value, and returns it."""
    deadline = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"the condition was not met within {seconds} s")
        time.sleep(0.01)


def crashed(text: str) -> bool:
    """Whether a text shows a panic or a traceback."""
    return _CRASHED.search(text) is not None


def program() -> str:
    """The path of the program under test."""
    return os.environ["BURSAR_BIN"]


class Sandbox:
    """A temporary home directory, with an environment that keeps the program inside it."""

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

    def __enter__(self) -> "Sandbox":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Stops servers that a failed test left running, and removes the directory."""
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
            timeout=TIMEOUT_SECONDS,
            check=False,
        )
        out, err = (part.decode("utf-8", "replace") for part in (ended.stdout, ended.stderr))
        if crashed(err):
            raise AssertionError(f"`bursar {' '.join(words)}` crashed: {err}")
        return Ended(ended.returncode, out, err)

    def ok(self, *words: str) -> str:
        """Runs a command that must succeed."""
        ended = self.run(*words)
        if ended.code != 0:
            raise AssertionError(f"`bursar {' '.join(words)}` exited {ended.code}: {ended.stderr}")
        return ended.stdout

    def up(self) -> "Server":
        """Starts a server on the data directory, and waits until it is ready."""
        return Server(self).ready()


class Server:
    """A running `bursar up`; leaving its block stops it as Ctrl-C does."""

    def __init__(self, sandbox: Sandbox) -> None:
        self.sandbox = sandbox
        self.log = sandbox.home / "log"
        words = ["up", "--data", str(sandbox.data), "--listen", "127.0.0.1:0", "-o", "json"]
        sandbox.started.append(self)
        self._before = self.log.stat().st_size if self.log.exists() else 0
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(
                [program(), *words],
                env=sandbox.environment,
                cwd=sandbox.home,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
            )
        self.address = ""
        self.socket = str(sandbox.data / "api.sock")

    def ready(self) -> "Server":
        """Waits until it reports that it is ready; raises `NotStarted` if it ends instead."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            self.process.stdout.close()
            code = self.process.wait(TIMEOUT_SECONDS)
            raise NotStarted(Ended(code, "", self.log_text()))
        self.address = json.loads(line)["server"].split("//")[1]
        return self

    def __enter__(self) -> "Server":
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def log_text(self) -> str:
        """The log of this server."""
        with open(self.log, "rb") as log:
            log.seek(self._before)
            return log.read().decode("utf-8", "replace")

    def kill(self) -> None:
        """Ends it without any warning."""
        self.end(signal.SIGKILL)

    def stop(self) -> None:
        """Ends it as Ctrl-C does; a second call has no effect."""
        self.end(signal.SIGINT)
        if crashed(self.log_text()):
            raise AssertionError(f"the server crashed: {self.log_text()}")

    def end(self, how: signal.Signals) -> None:
        """Sends a signal, if it still runs, and waits for its end."""
        assert self.process.stdout is not None
        if self.process.poll() is None:
            self.process.send_signal(how)
            try:
                self.process.wait(TIMEOUT_SECONDS)
            finally:
                self.process.kill()
                self.process.wait()
        self.process.stdout.close()

    def ask(self, method: str, path: str, body: Any = None, **options: Any) -> Answer:
        """Sends a request over the socket, as an operator; see `ask`."""
        return ask(self.socket, method, path, body, **options)

    def ask_tcp(self, method: str, path: str, body: Any = None, **options: Any) -> Answer:
        """Sends a request over loopback, with or without a token; see `ask`."""
        return ask(self.address, method, path, body, **options)

    def must(self, method: str, path: str, body: Any = None, **options: Any) -> Any:
        """Sends a request over the socket that must succeed."""
        answer = self.ask(method, path, body, **options)
        if answer.status >= 300:
            raise AssertionError(f"{method} {path}: {answer.status} {answer.text()}")
        return answer.json()

    def command(self, *words: str) -> Ended:
        """Runs a command against this server."""
        return self.sandbox.run(*words, "--server", f"unix:{self.socket}")

    def export(self, name: str) -> pathlib.Path:
        """Writes an export to a file, as an operator does."""
        path = self.sandbox.home / name
        ended = self.command("ledger", "export", "--out", str(path))
        if ended.code != 0:
            raise AssertionError(f"the export failed: {ended.stderr}")
        return path

    def token(self, name: str, role: str, tenants: List[str], owners: Sequence[str] = ()) -> str:
        """Creates a token and returns its secret."""
        body = {"name": name, "roles": [role], "tenants": tenants, "owners": list(owners)}
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


def connect(target: str, timeout: float = TIMEOUT_SECONDS) -> http.client.HTTPConnection:
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
    timeout: float = TIMEOUT_SECONDS,
) -> Answer:
    """Sends one request on a new connection; raises `NoAnswer` if no complete answer came."""
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
        raise NoAnswer(f"{method} {path}: {error!r}") from error
    finally:
        connection.close()


def limit(name: str, **spec: Any) -> Dict[str, Any]:
    """A declared limit, as the body of `PUT /v1/limits/{name}`."""
    metadata = {"name": name}
    return {
        "apiVersion": "bursar.dev/v1alpha1",
        "kind": "Limit",
        "metadata": metadata,
        "spec": spec,
    }
