"""Money: runs come and go while the server is killed, and a second bookkeeper adds the GPU time again.

The bookkeeper reads only the export and the answers. It is written from the rules of budgets (A1, B1, B2),
not from the code: it lays claims over leases, adds rectangles, and compares at the end of every record.
"""

from __future__ import annotations

import json
import pathlib
import time
import unittest
from dataclasses import dataclass, field
from typing import Any, Dict, List, Optional, Set, Tuple

import rig

HOUR_MS = 3_600_000
OWNERS = ["org:a", "org:b", "org:c"]
#: GPUs of a node: many, so that a GPU-hour is used up within seconds.
NODE_GPUS = 64
NODES = 6
#: Minimum number of kills, even on a slow machine.
KILLS_MIN = 4

Payer = Tuple[str, str]


@dataclass
class Held:
    """GPUs of a run with their payers."""

    pods: Dict[int, List[Tuple[str, int]]] = field(default_factory=dict)
    claims: List[Tuple[Payer, int]] = field(default_factory=list)
    unfunded: List[int] = field(default_factory=list)

    def width(self) -> int:
        """Live GPUs."""
        return sum(len(gpus) for gpus in self.pods.values())

    def paid(self) -> int:
        """GPUs that envelopes pay for."""
        return sum(gpus for _, gpus in self.claims)

    def leave(self, gpus: int) -> None:
        """GPUs that close leave unfunded claims first, then the newest funded one."""
        while gpus and self.unfunded:
            last = self.unfunded.pop()
            if last > gpus:
                self.unfunded.append(last - gpus)
            gpus = max(0, gpus - last)
        while gpus and self.claims:
            payer, last = self.claims.pop()
            if last > gpus:
                self.claims.append((payer, last - gpus))
            gpus = max(0, gpus - last)


@dataclass
class Meter:
    """An envelope, a lending pool or a cap, in its present epoch."""

    budget: str
    #: Envelopes whose claims it counts; of a lending pool only those that are lent.
    envelopes: Set[str] = field(default_factory=set)
    is_pool: bool = False
    #: Limits in force: GPUs at once, and GPU-milliseconds of an epoch.
    gpus_max: Optional[int] = None
    time_max: Optional[int] = None
    accrued: int = 0

    def limit(self, envelopes: Set[str], gpus: Optional[int], hours: Optional[int]) -> None:
        """Sets the limits."""
        self.envelopes, self.gpus_max = envelopes, gpus
        self.time_max = None if hours is None else hours * HOUR_MS


class Books:
    """The state of GPUs and money according to the events of an export."""

    def __init__(self) -> None:
        self.now = 0
        self.nodes: Dict[str, Dict[str, Any]] = {}
        self.meters: Dict[str, Meter] = {}
        self.runs: Dict[str, str] = {}
        self.ended: Dict[str, str] = {}
        self.held: Dict[str, Held] = {}
        self.leased: Dict[Tuple[str, int], str] = {}
        #: GPU-milliseconds: of leases, and by run and payer.
        self.occupied = 0
        self.debits: Dict[str, Dict[str, int]] = {}
        #: Numbers of closed epochs with used time, demotions, refunds and loans.
        self.epochs = self.demotions = self.refunds = self.loans = 0
        self.findings: List[str] = []

    def find(self, seq: int, text: str) -> None:
        """Notes a contradiction."""
        if len(self.findings) < 20:
            self.findings.append(f"record {seq}: {text}")

    def read(self, path: pathlib.Path) -> "Books":
        """Reads an export."""
        for line in path.read_text(encoding="utf-8").splitlines():
            record = json.loads(line)
            if isinstance(record.get("ev"), list):
                self.record(record)
        return self

    def record(self, record: Dict[str, Any]) -> None:
        """Takes one record, and checks every sum after it."""
        seq = record["seq"]
        for event in record["ev"]:
            (kind, fields), = event.items()
            at = fields.get("t", record["t"]) if isinstance(fields, dict) else record["t"]
            if at > record["t"]:
                self.find(seq, f"{kind} is later than its record")
            self.pass_time(seq, at)
            self.event(seq, kind, fields)
        self.check(seq)

    def pass_time(self, seq: int, at: int) -> None:
        """Adds the rectangles since the last event. No meter accrues beyond the limit in force."""
        length = max(0, at - self.now)
        self.now = max(self.now, at)
        if not length:
            return
        for uid, held in self.held.items():
            self.occupied += held.width() * length
            debits = self.debits.setdefault(uid, {})
            for (envelope, _), gpus in held.claims:
                debits[envelope] = debits.get(envelope, 0) + gpus * length
            debits[""] = debits.get("", 0) + sum(held.unfunded) * length
        for name, gpus in self.used().items():
            meter = self.meters[name]
            meter.accrued += gpus * length
            if meter.time_max is not None and meter.accrued > meter.time_max:
                self.find(seq, f"{name} has used {meter.accrued} GPU-ms of {meter.time_max}")

    def used(self) -> Dict[str, int]:
        """GPUs of the meters that pay for any."""
        claims = [claim for held in self.held.values() for claim in held.claims]
        used: Dict[str, int] = {}
        for name, meter in self.meters.items():
            for (envelope, pool), gpus in claims:
                if envelope in meter.envelopes and (pool == "lent" or not meter.is_pool):
                    used[name] = used.get(name, 0) + gpus
        return used

    def event(self, seq: int, kind: str, fields: Dict[str, Any]) -> None:
        """Takes one event."""
        uid = fields.get("of", {}).get("uid", fields.get("uid", ""))
        if kind == "nodeSet":
            self.nodes[fields["name"]] = fields
        elif kind == "budgetSet":
            self.declare(fields)
        elif kind == "epochClosed":
            self.close_epoch(seq, fields["epoch"])
        elif kind == "runSubmitted":
            run = fields["run"]
            self.runs[f"{run['namespace']}/{run['name']}"] = uid
        elif kind == "runFunded":
            self.fund(seq, uid, fields)
        elif kind == "runDemoted":
            self.demotions += 1
            for line in fields["claims"]:
                self.take_off(seq, uid, (line["envelope"], line["pool"]), line["gpus"])
                self.held[uid].unfunded.append(line["gpus"])
        elif kind == "leasesOpened":
            self.open(seq, uid, fields["pods"])
        elif kind == "leasesClosed":
            self.close(seq, uid, fields)
        elif kind == "runEnded":
            if self.held.pop(uid, Held()).width():
                self.find(seq, f"{uid} ended and holds GPUs")
            self.ended[uid] = fields["reason"]

    def declare(self, spec: Dict[str, Any]) -> None:
        """Sets the limits of the meters of a budget; what it names no more has none."""
        budget = f"{spec['namespace']}/{spec['name']}"
        for meter in self.meters.values():
            if meter.budget == budget:
                meter.limit(set(), None, None)
        for part in spec.get("envelopes", []):
            name = f"{budget}/{part['name']}"
            own = self.meters.setdefault(name, Meter(budget))
            own.limit({name}, part["concurrency"], part.get("maxGPUHours"))
            lending = part.get("lending", {})
            pool = self.meters.setdefault(f"lending/{name}", Meter(budget, is_pool=True))
            pool.limit({name}, lending.get("maxConcurrency"), lending.get("maxGPUHours"))
        for part in spec.get("aggregateCaps", []):
            cap = self.meters.setdefault(f"cap/{budget}/{part['name']}", Meter(budget))
            cap.limit(set(part["envelopes"]), part.get("maxConcurrency"), part.get("maxGPUHours"))

    def close_epoch(self, seq: int, epoch: Dict[str, Any]) -> None:
        """Compares the closed sum with the own one."""
        meter = self.meters[epoch["meter"]]
        if meter.accrued != epoch["accruedGpuMs"]:
            closed = epoch["accruedGpuMs"]
            self.find(seq, f"{epoch['meter']} closed at {closed}, the sum is {meter.accrued}")
        self.epochs += meter.accrued > 0
        meter.accrued = 0

    def fund(self, seq: int, uid: str, fields: Dict[str, Any]) -> None:
        """Envelopes pay for GPUs of a run."""
        held = self.held.setdefault(uid, Held())
        lines = fields["claims"]
        if fields["cause"] in ("extension", "overrun"):
            return
        self.loans += sum(line["pool"] == "lent" for line in lines)
        if fields["cause"] == "refund":
            self.refunds += 1
            gpus = sum(line["gpus"] for line in lines)
            if gpus not in held.unfunded:
                self.find(seq, f"{uid}: no unfunded claim of {gpus} GPUs")
                return
            held.unfunded.remove(gpus)
        for line in lines:
            payer = (line["envelope"], line["pool"])
            for place, (known, gpus) in enumerate(held.claims):
                if known == payer:
                    held.claims[place] = (payer, gpus + line["gpus"])
                    break
            else:
                held.claims.append((payer, line["gpus"]))

    def take_off(self, seq: int, uid: str, payer: Payer, gpus: int) -> None:
        """A claim loses GPUs."""
        held = self.held[uid]
        for place, (known, has) in enumerate(held.claims):
            if known == payer and gpus <= has:
                held.claims[place] = (payer, has - gpus)
                held.claims = [claim for claim in held.claims if claim[1]]
                return
        self.find(seq, f"{uid} has no claim of {gpus} GPUs on {payer}")

    def open(self, seq: int, uid: str, pods: List[Dict[str, Any]]) -> None:
        """A run gets GPUs."""
        held = self.held.setdefault(uid, Held())
        for pod in pods:
            node = self.nodes.get(pod["node"], {})
            gpus = [(pod["node"], gpu) for first, last in pod["gpus"] for gpu in range(first, last + 1)]
            if node.get("unschedulable"):
                self.find(seq, f"{uid} is placed on the cordoned node {pod['node']}")
            for gpu in gpus:
                if gpu in self.leased or gpu[1] >= node.get("gpus", 0):
                    self.find(seq, f"{uid} gets {gpu}, which is leased or does not exist")
                self.leased[gpu] = uid
            held.pods[pod["pod"]] = gpus

    def close(self, seq: int, uid: str, fields: Dict[str, Any]) -> None:
        """GPUs of a run are free again."""
        held = self.held[uid]
        pods = fields.get("pods") or list(held.pods)
        closed = [gpu for pod in pods for gpu in held.pods.pop(pod)]
        if len(closed) != fields["gpus"]:
            self.find(seq, f"{uid} closes {fields['gpus']} GPUs, its pods have {len(closed)}")
        held.leave(len(closed))
        for gpu in closed:
            del self.leased[gpu]

    def check(self, seq: int) -> None:
        """Every GPU has exactly one payer or none, and no envelope pays for more than it may."""
        for uid, held in self.held.items():
            if held.width() != held.paid() + sum(held.unfunded):
                self.find(seq, f"{uid} holds {held.width()} GPUs, its claims are others")
        for name, gpus in self.used().items():
            gpus_max = self.meters[name].gpus_max
            if gpus_max is not None and gpus > gpus_max:
                self.find(seq, f"{name} pays for {gpus} of {gpus_max} GPUs")
        debited = sum(sum(debits.values()) for debits in self.debits.values())
        if debited != self.occupied:
            self.find(seq, f"{self.occupied} GPU-ms occupied, {debited} debited or unfunded")


def declared(kind: str, namespace: str, name: str, spec: Dict[str, Any]) -> Dict[str, Any]:
    """A budget or a run as an object."""
    metadata = {"namespace": namespace, "name": name}
    return {"apiVersion": "bursar.dev/v1alpha1", "kind": kind, "metadata": metadata, "spec": spec}


def node(name: str, number: int, cordoned: bool = False) -> Dict[str, Any]:
    """A simulated node."""
    labels = {
        "topology.kubernetes.io/region": "here",
        "bursar.dev/cluster": "one",
        "bursar.dev/domain": f"rack-{number % 2}",
        "bursar.dev/flavor": "g",
    }
    allocatable = {"cpu": "8", "memory": "64Gi", "nvidia.com/gpu": str(NODE_GPUS)}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "spec": {"unschedulable": cordoned},
        "status": {"allocatable": allocatable},
    }


class Money(unittest.TestCase):
    """GPU time is conserved to the millisecond, however often the server is killed."""

    def setUp(self) -> None:
        self.random = rig.random_of("money")
        self.made = 0
        #: Runs whose submission was answered with success, and those that were cancelled.
        self.accepted: Set[str] = set()
        self.lost = 0

    def test_no_kill_breaks_conservation_or_a_budget(self) -> None:
        with rig.Sandbox() as sandbox:
            server = sandbox.up()
            objects = [node(f"n{number}", number) for number in range(NODES)]
            objects += [self.budget(owner) for owner in OWNERS]
            objects.append(self.capping())
            server.must("POST", "/v1/apply", {"objects": objects})
            kills = 0
            end = time.monotonic() + rig.Options.seconds / 2
            while time.monotonic() < end or kills < KILLS_MIN:
                until = time.monotonic() + self.random.random() * 3
                while time.monotonic() < until:
                    self.act(server)
                server.kill()
                kills += 1
                server = sandbox.up()
            self.end_all(server)
            books = Books().read(server.export("money.jsonl"))
            self.assertEqual(books.findings, [], f"with seed {rig.Options.seed}")
            self.compare(server, books)
            server.stop()
            sandbox.ok("ledger", "check", "--redecide", "--store", str(sandbox.data))
            counts = {
                "demotions": books.demotions,
                "refunds": books.refunds,
                "loans": books.loans,
                "epochs": books.epochs,
                "GPU-hours": books.occupied // HOUR_MS,
            }
            shown = ", ".join(f"{count} {what}" for what, count in counts.items())
            print(f"{kills} kills, {len(books.runs)} runs, {shown} ... ", end="", flush=True)
            for what, count in counts.items():
                self.assertGreater(count, 0, f"no {what}: the test attacked too little")

    def budget(self, owner: str) -> Dict[str, Any]:
        """A random budget of an owner: few hours, small horizons, sharing and lending."""
        envelope: Dict[str, Any] = {
            "name": "g",
            "flavor": "g",
            "concurrency": self.random.choice([32, 64, 128, 192]),
            "sharing": self.random.choice(["family", "none"]),
            "onExhaustion": self.random.choice(["demote", "demote", "end"]),
            "admissionHorizon": self.random.choice(["1s", "2s", "10s"]),
        }
        if self.random.random() < 0.7:
            envelope["maxGPUHours"] = self.random.choice([1, 1, 2, 5])
        if self.random.random() < 0.5:
            pool = {"allow": True, "to": ["org:*"], "maxConcurrency": self.random.choice([16, 64])}
            envelope["lending"] = pool
        spec = {"owner": owner, "parents": ["org"], "envelopes": [envelope]}
        return declared("Budget", owner.split(":")[1], "q", spec)

    def capping(self) -> Dict[str, Any]:
        """A budget of the owners' parent, with a random cap over all their envelopes."""
        cap: Dict[str, Any] = {
            "name": "all",
            "flavor": "g",
            "envelopes": [f"{owner.split(':')[1]}/q/g" for owner in OWNERS],
            "maxConcurrency": self.random.choice([96, 160, 256]),
        }
        if self.random.random() < 0.5:
            cap["maxGPUHours"] = self.random.choice([2, 5, 9])
        return declared("Budget", "org", "q", {"owner": "org", "aggregateCaps": [cap]})

    def act(self, server: rig.Server) -> None:
        """Sends one random request; the server may be gone."""
        act = self.random.random()
        if act < 0.6:
            self.submit(server)
        elif act < 0.7 and self.accepted:
            run = self.random.choice(sorted(self.accepted))
            self.send(server, "POST", f"/v1/runs/{run}/cancel", {})
        elif act < 0.8:
            is_cap = self.random.random() < 0.2
            budget = self.capping() if is_cap else self.budget(self.random.choice(OWNERS))
            path = f"/v1/budgets/{budget['metadata']['namespace']}/q"
            self.send(server, "PUT", path, budget)
        elif act < 0.9:
            number = self.random.randrange(NODES)
            body = node(f"n{number}", number, self.random.random() < 0.5)
            self.send(server, "PUT", f"/v1/nodes/n{number}", body)
        else:
            owner = self.random.choice(OWNERS).split(":")[1]
            key = {"Idempotency-Key": f"key-{self.random.randrange(1 << 40)}"}
            self.send(server, "POST", f"/v1/budgets/{owner}/q/rotate", {"envelope": "g"}, key)

    def submit(self, server: rig.Server) -> None:
        """Submits a run, and sometimes repeats the submission."""
        owner = self.random.choice(OWNERS)
        self.made += 1
        name = f"{owner.split(':')[1]}/r{self.made}"
        pod = self.random.choice([8, 16, 32])
        spec: Dict[str, Any] = {
            "owner": owner,
            "flavor": "g",
            "totalGPUs": pod * self.random.choice([1, 1, 2, 3]),
            "podGPUs": pod,
            "grace": self.random.choice(["100ms", "500ms"]),
            "funding": {"allowBorrow": True, "sponsors": self.random.sample(OWNERS, 2)},
        }
        if self.random.random() < 0.8:
            spec["expectedDuration"] = self.random.choice(["300ms", "1s", "3s"])
        if self.random.random() < 0.3:
            spec["maxDuration"] = self.random.choice(["2s", "4s"])
        body = declared("Run", *name.split("/"), spec)
        for _ in range(self.random.choice([1, 1, 2])):
            status = self.send(server, "PUT", f"/v1/runs/{name}", body)
            if status in (200, 201):
                self.accepted.add(name)

    def send(
        self,
        server: rig.Server,
        method: str,
        path: str,
        body: Any,
        headers: Optional[Dict[str, str]] = None,
    ) -> Optional[int]:
        """Sends a request; the status, or `None` without an answer."""
        try:
            answer = server.ask(method, path, body, headers=headers, timeout=5)
        except rig.NoAnswer:
            self.lost += 1
            return None
        self.assertLess(answer.status, 500, answer.text())
        return answer.status

    def end_all(self, server: rig.Server) -> None:
        """Cancels every run, and waits until all GPUs are free."""
        for run in sorted(self.accepted):
            server.ask("POST", f"/v1/runs/{run}/cancel", {})

        def is_free() -> bool:
            page = server.must("GET", "/v1/runs?state=waiting,starting,running,stopping&limit=1000")
            for item in page["items"]:
                metadata = item["metadata"]
                server.ask("POST", f"/v1/runs/{metadata['namespace']}/{metadata['name']}/cancel", {})
            return not page["items"]

        rig.eventually(is_free)

    def compare(self, server: rig.Server, books: Books) -> None:
        """Compares the answers and the usage with the books."""
        for run in self.accepted:
            self.assertIn(run, books.runs)
            self.assertIn(books.runs[run], books.ended)
        usage = server.must("GET", "/v1/usage?by=run")
        leased = 0
        for row in usage["items"]:
            self.assertIn("uid", row, "every run is remembered")
            own = {payer: ms for payer, ms in books.debits.get(row["uid"], {}).items() if ms}
            shown: Dict[str, int] = {"": row["unfundedGpuMs"]} if row["unfundedGpuMs"] else {}
            for debit in row.get("debits", []):
                payer = debit["envelope"]
                shown[payer] = shown.get(payer, 0) + debit["gpuMs"]
            self.assertEqual(shown, own, row["run"])
            leased += row["leasedGpuMs"]
        self.assertEqual(leased, books.occupied)
        total = server.must("GET", "/v1/usage?by=owner")["total"]
        self.assertEqual(total["leasedGpuMs"], books.occupied)
