"""Losses: every file of the data directory is lost or damaged, while the server is stopped or running.

Either the server starts with everything that it had acknowledged, or it refuses with exit 3 or 4 and
names the file and a remedy. It has then changed nothing, so everything is back when the file is put back.
"""

from __future__ import annotations

import concurrent.futures
import os
import pathlib
import re
import shutil
import threading
import unittest
from typing import Any, Callable, Dict, List, NamedTuple, Tuple

import rig

HOUR_MS = 3_600_000
#: A remedy in an error: a hint, or an instruction after the mistake.
REMEDY = re.compile(r"^hint: |; (put|restore|move|remove|run|give|make) ", re.MULTILINE)


class Acknowledged:
    """Everything that a server has acknowledged: bookings, limits, tokens, its ledger."""

    def __init__(self) -> None:
        self.ledger = ""
        self.records = 0
        self.highest_fence = 0
        self.bookings: Dict[str, Dict[str, Any]] = {}
        self.limits: Dict[str, int] = {}
        self.secrets: List[str] = []

    def add(self, server: rig.Server, name: str) -> None:
        """Creates objects of each kind, which the server acknowledges."""
        self.ledger = server.must("GET", "/v1/ledger")["ledger"]
        slots = 2 + len(self.limits)
        server.must("PUT", f"/v1/limits/{name}", rig.limit(name, **{"class": name, "slots": slots}))
        self.limits[name] = slots
        self.secrets.append(server.token(name, "view", []))
        for number in range(slots + 2):
            id = f"{name}-{number}"
            body = {"class": name, "tenant": "acme", "ttlMs": HOUR_MS, "waitMs": HOUR_MS}
            self.note(id, server.must("PUT", f"/v1/bookings/{id}", body))
        path, fence = f"/v1/bookings/{name}-0/release", self.bookings[f"{name}-0"]["fence"]
        self.note(f"{name}-0", server.must("POST", path, {"fence": fence}))
        # The release grants the next booking.
        self.note(f"{name}-{slots}", server.must("GET", f"/v1/bookings/{name}-{slots}"))

    def note(self, id: str, answer: Dict[str, Any]) -> None:
        """Notes the state of a booking in an answer."""
        state = {key: answer[key] for key in ("state", "fence", "end") if key in answer}
        self.bookings[id] = {**self.bookings.get(id, {}), **state}
        self.records = max(self.records, answer["record"] + 1)
        self.highest_fence = max(self.highest_fence, answer.get("fence", 0))

    def sign(self, server: rig.Server) -> None:
        """Waits until a checkpoint covers everything, so that a loss is noticed."""
        rig.eventually(lambda: server.must("GET", "/v1/ledger")["checkpoint"]["records"] >= self.records)

    def missing(self, server: rig.Server, tokens_ended: bool = False) -> List[str]:
        """Acknowledged data that a server has lost."""
        wrong = []
        ledger = server.must("GET", "/v1/ledger")
        if ledger["ledger"] != self.ledger:
            wrong.append(f"the ledger is {ledger['ledger']}, not {self.ledger}")
        if ledger["records"] < self.records:
            wrong.append(f"{ledger['records']} records of {self.records}")
        for id, expected in self.bookings.items():
            answer = server.ask("GET", f"/v1/bookings/{id}")
            found = answer.json()
            if answer.status != 200 or any(found.get(key) != expected[key] for key in expected):
                wrong.append(f"booking {id} was {expected}, now {answer.status} {found.get('state')}")
        for name, slots in self.limits.items():
            answer = server.ask("GET", f"/v1/limits/{name}")
            if answer.status != 200 or answer.json()["spec"]["slots"] != slots:
                wrong.append(f"limit {name} was {slots} slots, now {answer.text()[:100]}")
        for secret in self.secrets:
            if not tokens_ended and server.ask_tcp("GET", "/v1/identity", token=secret).status != 200:
                wrong.append("a token is refused")
        answer = server.ask("PUT", "/v1/bookings/next", {"class": "next", "tenant": "acme"})
        if answer.status not in (200, 201) or answer.json()["fence"] <= self.highest_fence:
            wrong.append(f"the next grant: {answer.text()[:200]}, after fence {self.highest_fence}")
        return wrong


class Damage(NamedTuple):
    """A way to damage a file."""

    what: str
    #: Takes the file and its earlier version; returns whether it changed anything.
    apply: Callable[[pathlib.Path, pathlib.Path], bool]


def remove(path: pathlib.Path, _: pathlib.Path) -> bool:
    """Removes the file."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()
    return True


def halve(path: pathlib.Path, _: pathlib.Path) -> bool:
    """Removes its second half."""
    return path.is_file() and _write(path, path.read_bytes()[: path.stat().st_size // 2])


def empty(path: pathlib.Path, _: pathlib.Path) -> bool:
    """Truncates it to nothing."""
    return path.is_file() and _write(path, b"")


def flip(path: pathlib.Path, _: pathlib.Path) -> bool:
    """Flips one bit in its middle."""
    if not path.is_file() or path.stat().st_size == 0:
        return False
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0x04
    return _write(path, bytes(data))


def older(path: pathlib.Path, earlier: pathlib.Path) -> bool:
    """Replaces it with its earlier version."""
    return path.is_file() and earlier.is_file() and _write(path, earlier.read_bytes())


def block(path: pathlib.Path, earlier: pathlib.Path) -> bool:
    """Replaces a file with a directory, or the reverse, which root cannot read either."""
    was_directory = path.is_dir() and not path.is_symlink()
    if os.path.lexists(path):
        remove(path, earlier)
    if was_directory:
        path.write_bytes(b"no directory\n")
    else:
        path.mkdir()
        (path / "inside").write_bytes(b"no file\n")
    return True


def junk(path: pathlib.Path, _: pathlib.Path) -> bool:
    """Writes bytes without meaning."""
    path.write_bytes(bytes(range(256)) * 20)
    return True


def lie(path: pathlib.Path, _: pathlib.Path) -> bool:
    """Writes a snapshot of an empty state."""
    text = '{"head":20,"sha256":"' + "0" * 64 + '","edge":{"size":20,"hashes":[]}}\n'
    path.write_text(text)
    return True


def _write(path: pathlib.Path, data: bytes) -> bool:
    if data == path.read_bytes():
        return False
    path.write_bytes(data)
    return True


DAMAGES = [Damage(apply.__name__, apply) for apply in (remove, halve, empty, flip, older, block)]


class Ledger:
    """Files of a killed or stopped server, with an earlier copy."""

    def __init__(self, sandbox: rig.Sandbox, is_killed: bool) -> None:
        self.name = "killed" if is_killed else "stopped"
        self.data = sandbox.data
        self.earlier = sandbox.home / "earlier"
        self.acknowledged = Acknowledged()
        with sandbox.up() as server:
            self.acknowledged.add(server, "first")
            run = {"class": "run", "tenant": "acme", "command": "/bin/echo", "args": ["hello"]}
            server.must("PUT", "/v1/executions/run", run)
            rig.eventually(lambda: server.must("GET", "/v1/executions/run")["state"] == "ended")
            self.acknowledged.sign(server)
        copy(self.data, self.earlier)
        server = sandbox.up()
        self.acknowledged.add(server, "second")
        self.acknowledged.sign(server)
        server.kill()
        if is_killed:
            return
        with sandbox.up() as server:
            self.acknowledged.add(server, "third")
            self.acknowledged.sign(server)


class Losses(unittest.TestCase):
    """Two ledgers, which are copied for each loss."""

    @classmethod
    def setUpClass(cls) -> None:
        ledgers = []
        for is_killed in (True, False):
            sandbox = rig.Sandbox()
            cls.addClassCleanup(sandbox.close)
            ledgers.append(Ledger(sandbox, is_killed))
        cls.killed, cls.stopped = ledgers

    def test_a_start_after_the_loss_of_a_file_has_everything_or_refuses(self) -> None:
        cases = []
        for ledger in (self.killed, self.stopped):
            for path in sorted(ledger.data.rglob("*")):
                # Copies contain no sockets.
                if path.is_socket():
                    continue
                name = path.relative_to(ledger.data)
                for damage in DAMAGES:
                    cases.append(Case(ledger, [name], damage))
        self.judge(cases)

    def test_foreign_files_do_no_harm(self) -> None:
        names = ["api.sock", "poison", "ledger.db-journal", "ledger.rescue.db", "ledger.key.new"]
        names += ["ledger.key.next", "snapshots", "snapshots/20.jsonl", "executions/else/status.json"]
        cases = []
        for name in map(pathlib.Path, names):
            for damage in (Damage("a file", junk), Damage("a snapshot", lie), Damage("a directory", block)):
                cases.append(Case(self.stopped, [name], damage))
        self.judge(cases)

    def test_remains_of_a_ledger_never_start_an_empty_one(self) -> None:
        store = ["ledger.db", "ledger.db-wal", "ledger.db-shm"]
        remove_all = DAMAGES[0]
        cases = []
        for left in (store, [*store, "ledger.checkpoint"], [*store, "ledger.key"]):
            names = [pathlib.Path(name) for name in left]
            cases.append(Case(self.killed, names, remove_all))
        outcomes = self.judge(cases)
        self.assertNotIn("started", outcomes)

    def judge(self, cases: List["Case"]) -> List[str]:
        """Tries every case, and fails with a list of all errors."""
        outcomes = attempt_all(cases)
        wrong = [f"{case}: {outcome}" for case, outcome in zip(cases, outcomes) if outcome not in FINE]
        counts = {fine: outcomes.count(fine) for fine in FINE}
        if wrong:
            self.fail(f"{len(wrong)} of {len(cases)} losses, {counts}:\n" + "\n".join(wrong))
        print(f"{counts} ... ", end="", flush=True)
        return outcomes


def attempt_all(cases: List["Case"]) -> List[str]:
    """Tries every case. Copies of the same ledger run one after another; the two ledgers in parallel."""
    is_over = threading.Event()

    def attempt(ledger: Ledger) -> Dict[int, str]:
        own = [(number, case) for number, case in enumerate(cases) if case.ledger is ledger]
        return {number: case.attempt() for number, case in own if not is_over.is_set()}

    ledgers = {id(case.ledger): case.ledger for case in cases}.values()
    with concurrent.futures.ThreadPoolExecutor() as pool:
        try:
            parts = list(pool.map(attempt, ledgers))
        finally:
            is_over.set()
    outcomes = {number: outcome for part in parts for number, outcome in part.items()}
    return [outcomes[number] for number in range(len(cases))]


#: Accepted results of a case; "same" means that the damage changed nothing.
FINE = ("started", "refused", "same")


class Case(NamedTuple):
    """One loss."""

    ledger: Ledger
    names: List[pathlib.Path]
    damage: Damage

    def __str__(self) -> str:
        names = ", ".join(map(str, self.names))
        return f"{self.ledger.name}: {self.damage.what} {names}"

    def attempt(self) -> str:
        """Damages a copy, starts a server on it, and returns the result."""
        with rig.Sandbox() as sandbox:
            copy(self.ledger.data, sandbox.data)
            changed = []
            for name in self.names:
                path = sandbox.data / name
                path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                if os.path.lexists(path) or self.damage.apply in (junk, lie, block):
                    changed.append(self.damage.apply(path, self.ledger.earlier / name))
            if not any(changed):
                return "same"
            try:
                server = sandbox.up()
            except rig.NotStarted as refusal:
                return self.refused(sandbox, refusal.ended)
            return self.started(sandbox, server)

    def started(self, sandbox: rig.Sandbox, server: rig.Server) -> str:
        """Checks that a started server has everything, and that its ledger is valid."""
        with server:
            wrong = self.ledger.acknowledged.missing(server)
        if wrong:
            return f"started without {'; '.join(wrong)}\n{server.log_text()}"
        checked = sandbox.run("ledger", "check", "--store", str(sandbox.data))
        failed = re.findall(r"^  FAIL  (\w+)", checked.stdout, re.MULTILINE)
        # The record of the market is not part of the ledger; the check names it separately.
        if checked.code != 0 and failed != ["market"]:
            return f"started, and `ledger check` exits {checked.code}: {checked.stdout}{checked.stderr}"
        return "started"

    def refused(self, sandbox: rig.Sandbox, ended: rig.Ended) -> str:
        """Checks that a refusal names the file and a remedy, and has changed nothing."""
        again = sandbox.run("up", "--data", str(sandbox.data), "--listen", "127.0.0.1:0")
        if again.code != ended.code:
            return f"exit {ended.code}, and then {again.code}: {again.stderr}"
        ended = again
        if ended.code not in (3, 4):
            return f"exit {ended.code}: {ended.stderr}"
        if not any(names(name, ended.stderr) for name in self.names):
            return f"exit {ended.code} does not name the file: {ended.stderr}"
        if not REMEDY.search(ended.stderr):
            return f"exit {ended.code} names no remedy: {ended.stderr}"
        for name in self.names:
            if os.path.lexists(sandbox.data / name):
                remove(sandbox.data / name, sandbox.data)
            if os.path.lexists(self.ledger.data / name):
                copy(self.ledger.data / name, sandbox.data / name)
        try:
            server = sandbox.up()
        except rig.NotStarted as refusal:
            return f"refused, and again after the file was put back: {refusal.ended.stderr}"
        outcome = self.started(sandbox, server)
        return "refused" if outcome == "started" else f"put back: {outcome}"


def names(file: pathlib.Path, text: str) -> bool:
    """Whether a text names a file; the store stands for its two companion files."""
    known = {file.name, re.sub("^ledger[.]db-(wal|shm)$", "ledger.db", file.name)}
    return any(re.search(rf"(?<![\w.-]){re.escape(name)}(?![\w.-])", text) for name in known)


class Running(unittest.TestCase):
    """Files lost under a running server: everything acknowledged is there after the next start."""

    def test_a_lost_store_ends_acknowledgements_and_is_rescued(self) -> None:
        store = ["ledger.db", "ledger.db-wal", "ledger.db-shm"]
        for names, apply in (
            (store, remove),
            (["ledger.db"], remove),
            (["ledger.db-wal"], remove),
            (["ledger.db"], replace_by_older),
            (["ledger.db-wal"], replace_by_older),
        ):
            with self.subTest(f"{apply.__name__} {', '.join(names)}"), rig.Sandbox() as sandbox:
                acknowledged, server = begin(sandbox)
                for name in names:
                    apply(sandbox.data / name, sandbox.home / "earlier" / name)
                statuses = [self.write(server, acknowledged, f"late-{number}") for number in range(4)]
                self.assertIn(statuses[0], (503, 504), "the first write is not acknowledged")
                self.assertEqual(statuses[2:], [503, 503])
                refused = server.ask("PUT", "/v1/bookings/later", {"class": "late", "tenant": "acme"})
                self.assertEqual(refused.json()["code"], "store-away")
                ready = server.ask("GET", "/readyz")
                self.assertEqual((ready.status, ready.json()["code"]), (503, "store-away"))
                server.stop()
                self.assertIn("ledger.rescue.db", server.log_text())
                rescued = sandbox.data / "ledger.rescue.db"
                sandbox.ok("ledger", "restore", str(rescued), "--yes", "--store", str(sandbox.data))
                with sandbox.up() as server:
                    self.assertEqual(acknowledged.missing(server, tokens_ended=True), [])
                sandbox.ok("ledger", "check", "--store", str(sandbox.data))

    def test_a_data_directory_that_was_moved_acknowledges_nothing_and_can_be_put_back(self) -> None:
        with rig.Sandbox() as sandbox:
            acknowledged, server = begin(sandbox)
            moved = sandbox.home / "moved"
            sandbox.data.rename(moved)
            server.socket = str(moved / "api.sock")
            statuses = [self.write(server, acknowledged, f"late-{number}") for number in range(3)]
            self.assertIn(statuses[0], (503, 504))
            self.assertEqual(statuses[1:], [503, 503])
            server.stop()
            # The rescued data is at the old path, and no new ledger starts beside it.
            self.assertEqual([path.name for path in sandbox.data.iterdir()], ["ledger.rescue.db"])
            with self.assertRaises(rig.NotStarted) as refused:
                sandbox.up()
            self.assertEqual(refused.exception.ended.code, 3)
            shutil.rmtree(sandbox.data)
            moved.rename(sandbox.data)
            with sandbox.up() as server:
                self.assertEqual(acknowledged.missing(server), [])

    def test_the_loss_of_another_file_loses_nothing_that_was_acknowledged(self) -> None:
        files = ("ledger.db-shm", "ledger.key", "ledger.checkpoint", "ledger.index", "lock")
        for name in (*files, "executions", "market"):
            with self.subTest(name), rig.Sandbox() as sandbox:
                acknowledged, server = begin(sandbox)
                copy(sandbox.data / name, sandbox.home / "lost")
                remove(sandbox.data / name, sandbox.data)
                statuses = [self.write(server, acknowledged, f"late-{number}") for number in range(4)]
                self.assertTrue(set(statuses) <= {201, 503, 504}, statuses)
                server.stop()
                try:
                    server = sandbox.up()
                except rig.NotStarted as refusal:
                    self.assertIn(refusal.ended.code, (3, 4), refusal.ended.stderr)
                    self.assertIn(name, refusal.ended.stderr)
                    copy(sandbox.home / "lost", sandbox.data / name)
                    server = sandbox.up()
                with server:
                    self.assertEqual(acknowledged.missing(server), [])

    def write(self, server: rig.Server, acknowledged: Acknowledged, id: str) -> int:
        """Reserves a slot, and notes an acknowledgement."""
        body = {"class": "late", "tenant": "acme", "ttlMs": HOUR_MS}
        answer = server.ask("PUT", f"/v1/bookings/{id}", body)
        if answer.status < 300:
            acknowledged.note(id, answer.json())
        return answer.status


def begin(sandbox: rig.Sandbox) -> Tuple[Acknowledged, rig.Server]:
    """A server with acknowledged objects, and an earlier copy of its files."""
    acknowledged = Acknowledged()
    server = sandbox.up()
    acknowledged.add(server, "first")
    copy(sandbox.data, sandbox.home / "earlier")
    acknowledged.add(server, "second")
    acknowledged.sign(server)
    return acknowledged, server


def replace_by_older(path: pathlib.Path, earlier: pathlib.Path) -> None:
    """Replaces a file with another one that has its earlier content."""
    beside = path.with_name("beside")
    shutil.copy2(earlier, beside)
    os.replace(beside, path)


def copy(source: pathlib.Path, target: pathlib.Path) -> None:
    """Copies a file or directory, without sockets."""

    def sockets(directory: str, names: List[str]) -> List[str]:
        return [name for name in names if (pathlib.Path(directory) / name).is_socket()]

    if source.is_dir():
        shutil.copytree(source, target, ignore=sockets, symlinks=True)
    else:
        shutil.copy2(source, target)
