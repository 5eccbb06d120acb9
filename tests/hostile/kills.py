"""Kills: clients work over HTTP while the server is killed at random moments, and the oracle judges.

In the middle of the run the ledger is restored from an earlier backup, so the run also shows that no
fence is issued twice across a restore (S5).
"""

from __future__ import annotations

import threading
import time
import unittest
from typing import Any, Dict, List, Optional

import oracle
import rig

CLIENTS = 6
CLASSES = ["red", "green", "blue"]
TENANTS = ["ada", "bob", "eve"]
#: Minimum number of kills, even on a slow machine.
KILLS_MIN = 12

#: The limits that change while the clients work: of every kind, named and `each`.
LIMITS: List[Dict[str, Any]] = [
    {"name": "everything"},
    {"name": "tenants", "tenant": "each"},
    {"name": "eve", "tenant": "eve"},
    {"name": "default", "class": "each"},
    {"name": "red", "class": "red"},
    {"name": "pairs", "class": "each", "tenant": "each"},
    {"name": "red-each", "class": "red", "tenant": "each"},
    {"name": "each-bob", "class": "each", "tenant": "bob"},
    {"name": "green-ada", "class": "green", "tenant": "ada"},
]


class Run:
    """Shared state of all threads of a run."""

    def __init__(self, sandbox: rig.Sandbox) -> None:
        self.sandbox = sandbox
        self.socket = str(sandbox.data / "api.sock")
        self.generation = 0
        self.over = threading.Event()
        #: Clear while the clients must not send anything.
        self.working = threading.Event()
        self.working.set()
        self.notes: List[oracle.Note] = []
        self.failures: List[BaseException] = []

    def send(self, what: str, name: str, sent: Optional[int], *request: Any) -> Dict[str, Any]:
        """Sends a request and notes the answer; returns an empty one if none came."""
        generation = self.generation
        status: Optional[int] = None
        body: Dict[str, Any] = {}
        try:
            answer = rig.ask(self.socket, *request, timeout=10)
            status, body = answer.status, answer.json()
        except rig.NoAnswer:
            self.over.wait(0.03)
        self.notes.append(oracle.Note(generation, what, name, sent, status, body))
        return body


class Worker(threading.Thread):
    """A thread that acts at random until the run is over; it can be paused between two requests."""

    def __init__(self, run: Run, name: str) -> None:
        super().__init__(name=name)
        self.run_ = run
        self.random = rig.random_of(name)
        self.idle = threading.Event()

    def run(self) -> None:
        """Acts until the run is over."""
        try:
            while not self.run_.over.is_set():
                if not self.run_.working.is_set():
                    self.idle.set()
                    self.run_.working.wait(0.05)
                    continue
                self.idle.clear()
                self.act()
        except BaseException as error:  # An exception in a thread would be lost.
            self.run_.failures.append(error)
        finally:
            self.idle.set()

    def act(self) -> None:
        """Sends one request, or a few that belong together."""
        raise NotImplementedError


class Client(Worker):
    """Reserves, renews, releases, cancels and waits, under ids that nobody else uses."""

    def __init__(self, run: Run, number: int) -> None:
        super().__init__(run, f"client-{number}")
        self.made = 0
        #: Requests of live bookings by id, and their fences if known.
        self.requests: Dict[str, Dict[str, Any]] = {}
        self.fences: Dict[str, int] = {}
        #: Some ended bookings, for repeated requests.
        self.old: List[str] = []

    def act(self) -> None:
        held = list(self.fences)
        act = self.random.random()
        if act < 0.35 or not self.requests:
            self.reserve()
        elif act < 0.60 and held:
            self.release(self.random.choice(held))
        elif act < 0.75 and held:
            id = self.random.choice(held)
            self.learn(id, self.post("renew", id, {"fence": self.fences[id]}))
        elif act < 0.82:
            id = self.random.choice(list(self.requests))
            self.learn(id, self.post("cancel", id, {}))
        elif act < 0.90:
            self.batch()
        elif act < 0.93 and self.old:
            id = self.random.choice(self.old)
            self.post("release", id, {"fence": self.random.randrange(1, 1000)})
        else:
            id = self.random.choice(list(self.requests))
            path = f"/v1/bookings/{id}"
            self.learn(id, self.run_.send("look", id, None, "GET", path))

    def request(self) -> Dict[str, Any]:
        """A random request: short and long ttls, with and without a wait."""
        body: Dict[str, Any] = {
            "class": self.random.choice(CLASSES),
            "tenant": self.random.choice(TENANTS),
            "slots": self.random.choice([1, 1, 1, 2, 3]),
            "ttlMs": self.random.choice([1000, 1500, 3000, 60_000]),
        }
        if self.random.random() < 0.5:
            body["waitMs"] = self.random.choice([50, 500, 2000, 60_000])
        if self.random.random() < 0.3:
            body["priority"] = self.random.choice(["urgent", "high", "low", "batch"])
        return body

    def new_id(self) -> str:
        """An id that was never used."""
        self.made += 1
        return f"{self.name}-{self.made}"

    def reserve(self) -> None:
        """Reserves slots, and sometimes repeats an earlier request, as a client should without an answer."""
        lost = [id for id in self.requests if id not in self.fences]
        if lost and self.random.random() < 0.4:
            id = self.random.choice(lost)
        else:
            id = self.new_id()
            self.requests[id] = self.request()
        body = self.requests[id]
        self.learn(id, self.run_.send("reserve", id, None, "PUT", f"/v1/bookings/{id}", body))

    def release(self, id: str) -> None:
        """Releases slots, sometimes with a wrong fence, sometimes twice."""
        fence = self.fences[id]
        if self.random.random() < 0.1:
            self.post("release", id, {"fence": fence + self.random.choice([-1, 1])})
        for _ in range(self.random.choice([1, 1, 1, 2])):
            self.learn(id, self.post("release", id, {"fence": fence}))

    def batch(self) -> None:
        """Several operations in one request."""
        operations: List[Dict[str, Any]] = []
        for _ in range(self.random.randrange(1, 8)):
            id = self.new_id()
            self.requests[id] = self.request()
            operations.append({"op": "reserve", "id": id, **self.requests[id]})
        for id in self.random.sample(list(self.fences), min(2, len(self.fences))):
            operations.append({"op": "release", "id": id, "fence": self.fences[id]})
        generation = self.run_.generation
        try:
            body = {"operations": operations}
            answer = rig.ask(self.run_.socket, "POST", "/v1/bookings", body, timeout=10)
            results = answer.json().get("results", [{}] * len(operations))
            record = answer.json().get("record", -1)
        except rig.NoAnswer:
            results, record = [{}] * len(operations), -1
        for operation, result in zip(operations, results):
            body = {"record": record, **result} if result else {}
            id, what, sent = operation["id"], operation["op"], operation.get("fence")
            status = result.get("status")
            self.run_.notes.append(oracle.Note(generation, what, id, sent, status, body))
            self.learn(id, body)

    def post(self, what: str, id: str, body: Dict[str, Any]) -> Dict[str, Any]:
        """Acts on a booking."""
        path = f"/v1/bookings/{id}/{what}"
        return self.run_.send(what, id, body.get("fence"), "POST", path, body)

    def learn(self, id: str, body: Dict[str, Any]) -> None:
        """Updates the own state from an answer."""
        state, code = body.get("state"), body.get("code")
        if state == "granted" and "fence" in body:
            self.fences[id] = body["fence"]
        gone = state == "ended" or code in ("over-limit", "never-fits", "queue-full")
        if gone or code == "stale-fence":
            self.fences.pop(id, None)
            if self.requests.pop(id, None) is not None and state == "ended":
                self.old = [*self.old[-20:], id]


class Operator(Worker):
    """Changes limits, also to less than their use, and takes slots back."""

    def act(self) -> None:
        self.run_.over.wait(self.random.random() * 0.1)
        act = self.random.random()
        chosen = self.random.choice(LIMITS)
        name = chosen["name"]
        if act < 0.75:
            spec = {key: value for key, value in chosen.items() if key != "name"}
            spec["slots"] = self.random.choice([0, 1, 2, 3, 5, 8, 8, 13, 13, 21])
            body = rig.limit(name, **spec)
            self.run_.send("limit", name, spec["slots"], "PUT", f"/v1/limits/{name}", body)
        elif act < 0.9:
            self.run_.send("limit", name, -1, "DELETE", f"/v1/limits/{name}")
        else:
            page = self.run_.send("list", "", None, "GET", "/v1/bookings?state=granted&limit=5")
            for item in page.get("items", [])[:1]:
                path, body = f"/v1/bookings/{item['id']}/release", {"force": True, "reason": "test"}
                self.run_.send("force", item["id"], None, "POST", path, body)


class Kills(unittest.TestCase):
    """All answers are recorded and no rule is broken, however often the server is killed."""

    def setUp(self) -> None:
        self.random = rig.random_of("killer")
        self.kills = 0

    def test_no_kill_breaks_a_limit_a_fence_or_an_answer(self) -> None:
        with rig.Sandbox() as sandbox:
            run = Run(sandbox)
            server = sandbox.up()
            workers: List[Worker] = [Client(run, number) for number in range(CLIENTS)]
            workers.append(Operator(run, "operator"))
            for worker in workers:
                worker.start()
            try:
                server = self.kill_for(rig.Options.seconds / 4, server, 3)
                self.backup(server)
                server = self.kill_for(rig.Options.seconds / 4, server, 6)
                self.hold(run, workers)
                self.judge("before.jsonl", server, run)
                server = self.restore(run, server)
                run.working.set()
                server = self.kill_for(rig.Options.seconds / 2, server, KILLS_MIN)
            finally:
                run.over.set()
                for worker in workers:
                    worker.join(rig.TIMEOUT_SECONDS)
            self.assertEqual(run.failures, [])
            replay = self.judge("after.jsonl", server, run)
            server.stop()
            self.assertEqual(len(replay.restores), 1)
            self.assertGreater(replay.lowered_below_use, 0, "no limit was lowered below its use")
            sandbox.ok("ledger", "check", "--store", str(sandbox.data))
            self.assertFalse(rig.crashed(server.log.read_text(errors="replace")))
            lost = sum(note.status is None for note in run.notes)
            print(f"{self.kills} kills, {len(run.notes)} requests, {lost} answers lost, ", end="")
            print(f"{len(replay.bookings)} bookings ... ", end="", flush=True)

    def kill_for(self, seconds: float, server: rig.Server, kills: int) -> rig.Server:
        """Kills and restarts the server for a time, and until there were `kills` in total."""
        end = time.monotonic() + seconds
        while time.monotonic() < end or self.kills < kills:
            time.sleep(self.random.choice([0.05, 0.3, 1.0, 2.0]) * self.random.random())
            server.kill()
            self.kills += 1
            if self.random.random() < 0.25:
                # Also in the middle of a start.
                server = rig.Server(server.sandbox)
                time.sleep(self.random.random() * 0.4)
                server.kill()
                self.kills += 1
            server = server.sandbox.up()
        return server

    def backup(self, server: rig.Server) -> None:
        """Backs up the ledger while it is in use."""
        ended = server.command("ledger", "backup", "--out", str(server.sandbox.home / "early.backup"))
        self.assertEqual(ended.code, 0, ended.stderr)

    def hold(self, run: Run, workers: List[Worker]) -> None:
        """Pauses all workers and waits until no request is in flight."""
        run.working.clear()
        for worker in workers:
            self.assertTrue(worker.idle.wait(rig.TIMEOUT_SECONDS), f"{worker.name} hangs")

    def restore(self, run: Run, server: rig.Server) -> rig.Server:
        """Restores the ledger from the backup, as an operator does after a loss."""
        sandbox = server.sandbox
        server.kill()
        self.kills += 1
        backup = str(sandbox.home / "early.backup")
        sandbox.ok("ledger", "restore", backup, "--yes", "--store", str(sandbox.data))
        run.generation += 1
        return sandbox.up()

    def judge(self, name: str, server: rig.Server, run: Run) -> oracle.Replay:
        """Compares the export with the answers, and the holders in it with the server's list."""
        replay = oracle.judge(server.export(name), list(run.notes))
        if replay.findings:
            self.fail(f"with seed {rig.Options.seed}:\n" + "\n".join(replay.findings))
        shown = self.holders(server)
        # A few bookings expire meanwhile, so the list is compared with an export before and one after it.
        later = oracle.judge_records(oracle.read(server.export(f"later-{name}")), run.notes)
        self.assertLessEqual(replay.holders() & later.holders(), set(shown))
        for id, fence in shown.items():
            self.assertEqual(later.bookings[id].fence, fence, id)
        return replay

    @staticmethod
    def holders(server: rig.Server) -> Dict[str, int]:
        """All held bookings according to the server, with their fences."""
        shown: Dict[str, int] = {}
        path = "/v1/bookings?state=granted&limit=1000"
        page = server.must("GET", path)
        while True:
            shown.update({item["id"]: item["fence"] for item in page["items"]})
            if not page.get("nextCursor"):
                return shown
            page = server.must("GET", f"{path}&cursor={page['nextCursor']}")
