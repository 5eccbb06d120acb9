"""Losses: every file of the data directory lost or damaged, while the server is stopped and while it runs.

Either the server starts and everything that was acknowledged is there, or it refuses with exit 3 or 4
and says which file is meant and what to do; then nothing else was changed, so putting the file
back brings back everything.
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
#: A way out: a hint, or after what is wrong something to do.
WAY_OUT = re.compile(r"^hint: |; (put|restore|move|remove|run|give|make) ", re.MULTILINE)


class Acknowledged:
    """What a server has confirmed: its bookings, its limits, its tokens, its ledger."""

    def __init__(self) -> None:
        self.ledger = ""
        self.records = 0
        self.highest_fence = 0
        self.bookings: Dict[str, Dict[str, Any]] = {}
        self.limits: Dict[str, int] = {}
        self.secrets: List[str] = []

    def add(self, server: rig.Server, name: str) -> None:
        """Has a server confirm something of each kind."""
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
        # The release let the next one in.
        self.note(f"{name}-{slots}", server.must("GET", f"/v1/bookings/{name}-{slots}"))

    def note(self, id: str, answer: Dict[str, Any]) -> None:
        """Keeps what an answer said of a booking."""
        told = {key: answer[key] for key in ("state", "fence", "end") if key in answer}
        self.bookings[id] = {**self.bookings.get(id, {}), **told}
        self.records = max(self.records, answer["record"] + 1)
        self.highest_fence = max(self.highest_fence, answer.get("fence", 0))

    def sign(self, server: rig.Server) -> None:
        """Waits until a checkpoint covers everything: what is lost of it is then noticed."""
        rig.eventually(lambda: server.must("GET", "/v1/ledger")["checkpoint"]["records"] >= self.records)

    def missing(self, server: rig.Server, tokens_ended: bool = False) -> List[str]:
        """What a server does not know any more of what was confirmed."""
        wrong = []
        ledger = server.must("GET", "/v1/ledger")
        if ledger["ledger"] != self.ledger:
            wrong.append(f"it is ledger {ledger['ledger']}, not {self.ledger}")
        if ledger["records"] < self.records:
            wrong.append(f"{ledger['records']} records of {self.records}")
        for id, told in self.bookings.items():
            answer = server.ask("GET", f"/v1/bookings/{id}")
            found = answer.json()
            if answer.status != 200 or any(found.get(key) != told[key] for key in told):
                wrong.append(f"booking {id} was {told}, now {answer.status} {found.get('state')}")
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
    """A way to spoil a file."""

    what: str
    #: Gets the file, and the same file as it was earlier; says whether it has changed anything.
    spoil: Callable[[pathlib.Path, pathlib.Path], bool]


def remove(path: pathlib.Path, _: pathlib.Path) -> bool:
    """It is not there."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()
    return True


def halve(path: pathlib.Path, _: pathlib.Path) -> bool:
    """Its second half is missing."""
    return path.is_file() and _write(path, path.read_bytes()[: path.stat().st_size // 2])


def empty(path: pathlib.Path, _: pathlib.Path) -> bool:
    """It has no bytes."""
    return path.is_file() and _write(path, b"")


def flip(path: pathlib.Path, _: pathlib.Path) -> bool:
    """One bit in its middle is another."""
    if not path.is_file() or path.stat().st_size == 0:
        return False
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0x04
    return _write(path, bytes(data))


def older(path: pathlib.Path, earlier: pathlib.Path) -> bool:
    """It is what it was before the newest writes."""
    return path.is_file() and earlier.is_file() and _write(path, earlier.read_bytes())


def block(path: pathlib.Path, earlier: pathlib.Path) -> bool:
    """A thing of the wrong kind is in its place, which root cannot read either."""
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
    """Bytes that mean nothing."""
    path.write_bytes(bytes(range(256)) * 20)
    return True


def lie(path: pathlib.Path, _: pathlib.Path) -> bool:
    """A snapshot that says that nothing is held."""
    text = '{"head":20,"sha256":"' + "0" * 64 + '","edge":{"size":20,"hashes":[]}}\n'
    path.write_text(text)
    return True


def _write(path: pathlib.Path, data: bytes) -> bool:
    if data == path.read_bytes():
        return False
    path.write_bytes(data)
    return True


DAMAGES = [Damage(spoil.__name__, spoil) for spoil in (remove, halve, empty, flip, older, block)]


class Ledger:
    """A ledger that was killed in the middle of its work, or stopped after it, with what it was earlier."""

    def __init__(self, house: rig.House, is_killed: bool) -> None:
        self.name = "killed" if is_killed else "stopped"
        self.data = house.data
        self.earlier = house.home / "earlier"
        self.told = Acknowledged()
        with house.up() as server:
            self.told.add(server, "first")
            run = {"class": "run", "tenant": "acme", "command": "/bin/echo", "args": ["hello"]}
            server.must("PUT", "/v1/executions/run", run)
            rig.eventually(lambda: server.must("GET", "/v1/executions/run")["state"] == "ended")
            self.told.sign(server)
        copy(self.data, self.earlier)
        server = house.up()
        self.told.add(server, "second")
        self.told.sign(server)
        server.kill()
        if is_killed:
            return
        with house.up() as server:
            self.told.add(server, "third")
            self.told.sign(server)


class Losses(unittest.TestCase):
    """Two ledgers, copied for each loss."""

    @classmethod
    def setUpClass(cls) -> None:
        ledgers = []
        for is_killed in (True, False):
            house = rig.House()
            cls.addClassCleanup(house.close)
            ledgers.append(Ledger(house, is_killed))
        cls.killed, cls.stopped = ledgers

    def test_a_start_after_the_loss_of_a_file_has_everything_or_refuses(self) -> None:
        cases = []
        for ledger in (self.killed, self.stopped):
            for path in sorted(ledger.data.rglob("*")):
                # A socket is in no copy.
                if path.is_socket():
                    continue
                name = path.relative_to(ledger.data)
                for damage in DAMAGES:
                    cases.append(Case(ledger, [name], damage))
        self.judge(cases)

    def test_what_does_not_belong_there_harms_nothing(self) -> None:
        names = ["api.sock", "poison", "ledger.db-journal", "ledger.rescue.db", "ledger.key.new"]
        names += ["ledger.key.next", "snapshots", "snapshots/20.jsonl", "executions/else/status.json"]
        cases = []
        for name in map(pathlib.Path, names):
            for damage in (Damage("a file", junk), Damage("a snapshot", lie), Damage("a directory", block)):
                cases.append(Case(self.stopped, [name], damage))
        self.judge(cases)

    def test_what_is_left_of_a_ledger_never_starts_an_empty_one(self) -> None:
        store = ["ledger.db", "ledger.db-wal", "ledger.db-shm"]
        remove_all = DAMAGES[0]
        cases = []
        for left in (store, [*store, "ledger.checkpoint"], [*store, "ledger.key"]):
            names = [pathlib.Path(name) for name in left]
            cases.append(Case(self.killed, names, remove_all))
        outcomes = self.judge(cases)
        self.assertNotIn("started", outcomes)

    def judge(self, cases: List["Case"]) -> List[str]:
        """Tries every case, and fails with all that went wrong."""
        outcomes = attempt_all(cases)
        wrong = [f"{case}: {outcome}" for case, outcome in zip(cases, outcomes) if outcome not in FINE]
        counts = {fine: outcomes.count(fine) for fine in FINE}
        if wrong:
            self.fail(f"{len(wrong)} of {len(cases)} losses, {counts}:\n" + "\n".join(wrong))
        print(f"{counts} ... ", end="", flush=True)
        return outcomes


def attempt_all(cases: List["Case"]) -> List[str]:
    """Tries every case. Copies of one ledger do not run beside one another; those of two ledgers do."""
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


#: How a case may come out; "same" means that the damage changed nothing.
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
        """Spoils a copy and starts a server on it; says how that went."""
        with rig.House() as house:
            copy(self.ledger.data, house.data)
            changed = []
            for name in self.names:
                path = house.data / name
                path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                if os.path.lexists(path) or self.damage.spoil in (junk, lie, block):
                    changed.append(self.damage.spoil(path, self.ledger.earlier / name))
            if not any(changed):
                return "same"
            try:
                server = house.up()
            except rig.NotStarted as refusal:
                return self.refused(house, refusal.ended)
            return self.started(house, server)

    def started(self, house: rig.House, server: rig.Server) -> str:
        """A server that starts knows everything, and its ledger is good."""
        with server:
            wrong = self.ledger.told.missing(server)
        if wrong:
            return f"started without {'; '.join(wrong)}\n{server.said()}"
        checked = house.run("ledger", "check", "--store", str(house.data))
        failed = re.findall(r"^  FAIL  (\w+)", checked.stdout, re.MULTILINE)
        # The record of the market is no part of the ledger, and the check says which of them it is.
        if checked.code != 0 and failed != ["market"]:
            return f"started, and `ledger check` exits {checked.code}: {checked.stdout}{checked.stderr}"
        return "started"

    def refused(self, house: rig.House, ended: rig.Ended) -> str:
        """A refusal names the file and the way out, and has changed nothing."""
        said = house.run("up", "--data", str(house.data), "--listen", "127.0.0.1:0")
        if said.code != ended.code:
            return f"exit {ended.code}, and then {said.code}: {said.stderr}"
        ended = said
        if ended.code not in (3, 4):
            return f"exit {ended.code}: {ended.stderr}"
        if not any(names(name, ended.stderr) for name in self.names):
            return f"exit {ended.code} does not name the file: {ended.stderr}"
        if not WAY_OUT.search(ended.stderr):
            return f"exit {ended.code} says no way out: {ended.stderr}"
        for name in self.names:
            if os.path.lexists(house.data / name):
                remove(house.data / name, house.data)
            if os.path.lexists(self.ledger.data / name):
                copy(self.ledger.data / name, house.data / name)
        try:
            server = house.up()
        except rig.NotStarted as refusal:
            return f"refused, and again after the file was put back: {refusal.ended.stderr}"
        outcome = self.started(house, server)
        return "refused" if outcome == "started" else f"put back: {outcome}"


def names(file: pathlib.Path, text: str) -> bool:
    """Whether a text names a file; two files of the store may be named by the store itself."""
    known = {file.name, re.sub("^ledger[.]db-(wal|shm)$", "ledger.db", file.name)}
    return any(re.search(rf"(?<![\w.-]){re.escape(name)}(?![\w.-])", text) for name in known)


class Running(unittest.TestCase):
    """Files lost under a running server: nothing is acknowledged that the next start does not have."""

    def test_a_lost_store_stops_the_acknowledging_and_is_rescued(self) -> None:
        store = ["ledger.db", "ledger.db-wal", "ledger.db-shm"]
        for names, spoil in (
            (store, remove),
            (["ledger.db"], remove),
            (["ledger.db-wal"], remove),
            (["ledger.db"], replace_by_older),
            (["ledger.db-wal"], replace_by_older),
        ):
            with self.subTest(f"{spoil.__name__} {', '.join(names)}"), rig.House() as house:
                told, server = begin(house)
                for name in names:
                    spoil(house.data / name, house.home / "earlier" / name)
                statuses = [self.write(server, told, f"late-{number}") for number in range(4)]
                self.assertIn(statuses[0], (503, 504), "the first write is not acknowledged")
                self.assertEqual(statuses[2:], [503, 503])
                refused = server.ask("PUT", "/v1/bookings/later", {"class": "late", "tenant": "acme"})
                self.assertEqual(refused.json()["code"], "store-away")
                ready = server.ask("GET", "/readyz")
                self.assertEqual((ready.status, ready.json()["code"]), (503, "store-away"))
                server.stop()
                self.assertIn("ledger.rescue.db", server.said())
                rescued = house.data / "ledger.rescue.db"
                house.ok("ledger", "restore", str(rescued), "--yes", "--store", str(house.data))
                with house.up() as server:
                    self.assertEqual(told.missing(server, tokens_ended=True), [])
                house.ok("ledger", "check", "--store", str(house.data))

    def test_a_data_directory_that_was_moved_acknowledges_nothing_and_can_be_put_back(self) -> None:
        with rig.House() as house:
            told, server = begin(house)
            moved = house.home / "moved"
            house.data.rename(moved)
            server.socket = str(moved / "api.sock")
            statuses = [self.write(server, told, f"late-{number}") for number in range(3)]
            self.assertIn(statuses[0], (503, 504))
            self.assertEqual(statuses[1:], [503, 503])
            server.stop()
            # What the server still had is at the old path, and no new ledger begins beside it.
            self.assertEqual([path.name for path in house.data.iterdir()], ["ledger.rescue.db"])
            with self.assertRaises(rig.NotStarted) as refused:
                house.up()
            self.assertEqual(refused.exception.ended.code, 3)
            shutil.rmtree(house.data)
            moved.rename(house.data)
            with house.up() as server:
                self.assertEqual(told.missing(server), [])

    def test_the_loss_of_another_file_loses_nothing_that_was_acknowledged(self) -> None:
        files = ("ledger.db-shm", "ledger.key", "ledger.checkpoint", "ledger.index", "lock")
        for name in (*files, "executions", "market"):
            with self.subTest(name), rig.House() as house:
                told, server = begin(house)
                copy(house.data / name, house.home / "lost")
                remove(house.data / name, house.data)
                statuses = [self.write(server, told, f"late-{number}") for number in range(4)]
                self.assertTrue(set(statuses) <= {201, 503, 504}, statuses)
                server.stop()
                try:
                    server = house.up()
                except rig.NotStarted as refusal:
                    self.assertIn(refusal.ended.code, (3, 4), refusal.ended.stderr)
                    self.assertIn(name, refusal.ended.stderr)
                    copy(house.home / "lost", house.data / name)
                    server = house.up()
                with server:
                    self.assertEqual(told.missing(server), [])

    def write(self, server: rig.Server, told: Acknowledged, id: str) -> int:
        """Asks for a slot, and keeps what was confirmed."""
        body = {"class": "late", "tenant": "acme", "ttlMs": HOUR_MS}
        answer = server.ask("PUT", f"/v1/bookings/{id}", body)
        if answer.status < 300:
            told.note(id, answer.json())
        return answer.status


def begin(house: rig.House) -> Tuple[Acknowledged, rig.Server]:
    """A server that has confirmed something, with an earlier copy of its files beside it."""
    told = Acknowledged()
    server = house.up()
    told.add(server, "first")
    copy(house.data, house.home / "earlier")
    told.add(server, "second")
    told.sign(server)
    return told, server


def replace_by_older(path: pathlib.Path, earlier: pathlib.Path) -> None:
    """Another file under the same name, with what it held earlier."""
    beside = path.with_name("beside")
    shutil.copy2(earlier, beside)
    os.replace(beside, path)


def copy(source: pathlib.Path, target: pathlib.Path) -> None:
    """A copy of a file or directory; sockets are left out, as any copying tool does."""

    def sockets(directory: str, names: List[str]) -> List[str]:
        return [name for name in names if (pathlib.Path(directory) / name).is_socket()]

    if source.is_dir():
        shutil.copytree(source, target, ignore=sockets, symlinks=True)
    else:
        shutil.copy2(source, target)
