"""Tenants: answers to callers who may not see a tenant, on every route of the server.

The table has at least one row for each method and path of `openapi.json`; a route without a row
fails, and so does a row without a route. The victim's names contain a marker that must be in no answer
to the token of another tenant. No answer contains a fence or the output of an execution.
"""

from __future__ import annotations

import json
import re
import socket
import unittest
from typing import Any, Dict, List, NamedTuple, Optional, Set, Tuple

import rig

#: Part of the victim's tenant and class, of its arguments and of its output.
MARKER = "zq7x"
#: Prefix of the names of the victim's objects; an intruder may guess them but must learn nothing.
KNOWN = "known-"
TENANT, CLASS = f"{MARKER}-tenant", f"{MARKER}-class"
OUTPUT = f"{MARKER}-output"

#: Groups of statuses: done, forbidden for this caller, and as if the object did not exist.
DONE, FORBIDDEN, ABSENT = {200, 201, 202}, {401, 403}, {404}
HIDDEN = FORBIDDEN | ABSENT


class Row(NamedTuple):
    """One request, and the statuses that callers may get."""

    #: The path with its query; `{held}` is the record of the victim's grant, `{run}` that of its leases.
    path: str
    #: Statuses for the token of another tenant.
    use: Set[int]
    #: Statuses for a reader: a `view` token, and on loopback a caller without a token.
    view: Set[int]
    body: Any = None
    #: Statuses for a caller without a token, if they differ.
    nobody: Optional[Set[int]] = None


LIMIT = rig.limit("known-limit", tenant="acme", slots=1)
NODE = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {"name": "machine"},
    "status": {"allocatable": {"cpu": "4"}},
}
MINE = {"class": "shared", "tenant": "acme"}
THEIRS = {"class": CLASS, "tenant": TENANT}
RUN = {"class": "shared", "tenant": "acme", "command": "/bin/true"}
OWNER = f"{MARKER}-owner"
GPU_NODE = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {
        "name": "gpus",
        "labels": {
            "topology.kubernetes.io/region": "west",
            "bursar.dev/cluster": "one",
            "bursar.dev/domain": "rack",
            "bursar.dev/flavor": "h100",
        },
    },
    "status": {"allocatable": {"cpu": "4", "nvidia.com/gpu": "8"}},
}


def scoped(kind: str, name: str, **spec: Any) -> Dict[str, Any]:
    """A declared object of the victim's namespace."""
    metadata = {"name": name, "namespace": "known-space"}
    return {"apiVersion": "bursar.dev/v1alpha1", "kind": kind, "metadata": metadata, "spec": spec}


ENVELOPE = {"name": "h100", "flavor": "h100", "concurrency": 8}
BUDGET = scoped("Budget", "known-budget", owner=OWNER, envelopes=[ENVELOPE])
THEIR_RUN = scoped("Run", "known-gpus", owner=OWNER, flavor="h100", totalGPUs=8)
STOLEN_RUN = scoped("Run", "known-gpus", owner="acme", flavor="h100", totalGPUs=8)
TOKEN = {"name": "robber", "roles": ["operate"], "tenants": [TENANT]}
EXPORTED = {"from": 0, "below": 1}
#: A guess; the right fences are larger.
FENCE = {"fence": 1}

ROWS: Dict[str, List[Row]] = {
    "GET /healthz": [Row("/healthz", DONE, DONE)],
    "GET /readyz": [Row("/readyz", DONE, DONE)],
    "GET /openapi.json": [Row("/openapi.json", DONE, DONE)],
    "GET /problems/{code}": [Row("/problems/busy", DONE, DONE)],
    "GET /metrics": [Row("/metrics", FORBIDDEN, DONE)],
    "GET /log/checkpoint": [Row("/log/checkpoint", DONE, DONE)],
    "GET /log/inclusion/{record}": [Row("/log/inclusion/9", DONE, DONE)],
    "GET /log/tile/{path}": [
        Row("/log/tile/0/000.p/9", DONE, DONE),
        # Entries are the raw records, with their fences.
        Row("/log/tile/entries/000.p/9", HIDDEN, HIDDEN),
    ],
    "POST /v1/apply": [Row("/v1/apply", FORBIDDEN, FORBIDDEN, {"objects": [LIMIT]})],
    "GET /v1/bookings": [
        Row("/v1/bookings", DONE, DONE),
        Row("/v1/bookings?state=granted&limit=1000", DONE, DONE),
        Row("/v1/bookings?id=known-held", DONE | HIDDEN, DONE),
        Row(f"/v1/bookings?tenant={TENANT}", DONE | HIDDEN, DONE),
        Row(f"/v1/bookings?class={CLASS}", DONE, DONE),
    ],
    "POST /v1/bookings": [
        Row(
            "/v1/bookings",
            DONE,
            DONE | FORBIDDEN,
            {
                "operations": [
                    {"op": "cancel", "id": "known-queued"},
                    {"op": "release", "id": "known-held", "fence": 1},
                    {"op": "renew", "id": "known-held", "fence": 1},
                    {"op": "release", "id": "known-held", "force": True, "reason": "mine"},
                    {"op": "reserve", "id": "known-held", **MINE},
                    {"op": "reserve", "id": "batch-1", **THEIRS},
                ]
            },
        ),
    ],
    "GET /v1/bookings/{id}": [
        Row("/v1/bookings/known-held", ABSENT, DONE),
        Row("/v1/bookings/known-held?fence=1", ABSENT, DONE),
        Row("/v1/bookings/known-queued?wait=1ms", ABSENT, DONE),
        Row("/v1/bookings/mine", DONE, DONE),
    ],
    "PUT /v1/bookings/{id}": [
        Row("/v1/bookings/known-held", {409} | HIDDEN, FORBIDDEN, MINE),
        Row("/v1/bookings/known-held", FORBIDDEN, FORBIDDEN, THEIRS),
        Row("/v1/bookings/known-held?dryRun=true", {409} | HIDDEN, FORBIDDEN, MINE),
        Row("/v1/bookings/new-1", FORBIDDEN, FORBIDDEN, THEIRS),
        Row("/v1/bookings/new-2", {429}, FORBIDDEN, MINE),
        Row("/v1/bookings/new-2?dryRun=true", {429}, FORBIDDEN, MINE),
    ],
    "POST /v1/bookings/{id}/cancel": [
        Row("/v1/bookings/known-queued/cancel", ABSENT, FORBIDDEN, {}),
        Row("/v1/bookings/known-run/cancel", ABSENT, FORBIDDEN, {}),
    ],
    "PUT /v1/bookings/{id}/note": [
        Row("/v1/bookings/known-queued/note", ABSENT, FORBIDDEN, {"text": "x"}),
        Row("/v1/bookings/known-held/note?dryRun=true", ABSENT, FORBIDDEN, {"text": "x"}),
    ],
    "POST /v1/bookings/{id}/release": [
        Row("/v1/bookings/known-held/release", ABSENT, FORBIDDEN, FENCE),
        Row("/v1/bookings/known-held/release", HIDDEN, FORBIDDEN, {"force": True, "reason": "x"}),
    ],
    "POST /v1/bookings/{id}/renew": [
        Row("/v1/bookings/known-held/renew", ABSENT, FORBIDDEN, FENCE),
    ],
    "GET /v1/events": [
        Row("/v1/events?from=0", DONE, DONE),
        Row(f"/v1/events?from=0&tenant={TENANT}", DONE | HIDDEN, DONE),
    ],
    "GET /v1/executions": [
        Row("/v1/executions", DONE, DONE),
        Row("/v1/executions?id=known-run", DONE | HIDDEN, DONE),
        Row(f"/v1/executions?tenant={TENANT}", DONE | HIDDEN, DONE),
    ],
    "GET /v1/executions/{id}": [Row("/v1/executions/known-run", ABSENT, DONE)],
    "PUT /v1/executions/{id}": [
        Row("/v1/executions/known-run", {409} | HIDDEN, FORBIDDEN, RUN),
        Row("/v1/executions/new-3", FORBIDDEN, FORBIDDEN, {**RUN, **THEIRS}),
    ],
    "POST /v1/executions/{id}/cancel": [
        Row("/v1/executions/known-run/cancel", ABSENT, FORBIDDEN, {}),
    ],
    "GET /v1/executions/{id}/logs": [
        Row("/v1/executions/known-run/logs", ABSENT, FORBIDDEN),
        Row("/v1/executions/known-run/logs?stream=stdout&follow=true", ABSENT, FORBIDDEN),
    ],
    "GET /v1/explain/{kind}/{name}": [
        Row("/v1/explain/booking/known-held", ABSENT, DONE),
        Row("/v1/explain/booking/known-queued", ABSENT, DONE),
        Row("/v1/explain/booking/known-run", ABSENT, DONE),
        Row("/v1/explain/limit/known-limit", ABSENT, DONE),
        Row("/v1/explain/limit/known-pair", ABSENT, DONE),
        Row("/v1/explain/limit/everything", DONE, DONE),
        Row("/v1/explain/limit/shared", DONE, DONE),
        Row("/v1/explain/limit/tenants", DONE, DONE),
        Row("/v1/explain/limit/default", DONE, DONE),
        # The intruder's booking waits behind the victim's.
        Row("/v1/explain/booking/mine", DONE, DONE),
    ],
    "GET /v1/identity": [Row("/v1/identity", DONE, DONE)],
    "GET /v1/ledger": [Row("/v1/ledger", DONE, DONE)],
    "GET /v1/ledger/backup": [Row("/v1/ledger/backup", FORBIDDEN, FORBIDDEN)],
    "GET /v1/ledger/export": [
        Row("/v1/ledger/export", FORBIDDEN, FORBIDDEN),
        Row("/v1/ledger/export?from=9&to=9", FORBIDDEN, FORBIDDEN),
    ],
    "POST /v1/ledger/exported": [Row("/v1/ledger/exported", FORBIDDEN, FORBIDDEN, EXPORTED)],
    "POST /v1/ledger/prune": [
        Row("/v1/ledger/prune", FORBIDDEN, FORBIDDEN, {"before": "2030-01-01T00:00:00Z"}),
    ],
    "POST /v1/ledger/rotate-key": [Row("/v1/ledger/rotate-key", FORBIDDEN, FORBIDDEN, {})],
    "GET /v1/limits": [Row("/v1/limits", DONE, DONE)],
    "GET /v1/limits/{name}": [
        Row("/v1/limits/known-limit", ABSENT, DONE),
        Row("/v1/limits/known-pair", ABSENT, DONE),
        Row("/v1/limits/everything", DONE, DONE),
        Row("/v1/limits/shared", DONE, DONE),
        Row("/v1/limits/tenants", DONE, DONE),
        Row("/v1/limits/default", DONE, DONE),
        # A similar name: no suggestion may reveal the right one.
        Row("/v1/limits/nown-limit", ABSENT, ABSENT),
    ],
    "PUT /v1/limits/{name}": [
        Row("/v1/limits/known-limit", FORBIDDEN, FORBIDDEN, LIMIT),
        Row("/v1/limits/known-limit?dryRun=true", FORBIDDEN, FORBIDDEN, LIMIT),
    ],
    "DELETE /v1/limits/{name}": [
        Row("/v1/limits/known-limit", FORBIDDEN, FORBIDDEN),
        Row("/v1/limits/known-limit?dryRun=true", FORBIDDEN, FORBIDDEN),
    ],
    "GET /v1/nodes": [Row("/v1/nodes", DONE, DONE)],
    "GET /v1/nodes/{name}": [Row("/v1/nodes/machine", DONE, DONE)],
    "PUT /v1/nodes/{name}": [Row("/v1/nodes/machine", FORBIDDEN, FORBIDDEN, NODE)],
    "DELETE /v1/nodes/{name}": [Row("/v1/nodes/machine", FORBIDDEN, FORBIDDEN)],
    "GET /v1/nodes/{name}/market": [
        Row("/v1/nodes/machine/market", HIDDEN, DONE | ABSENT),
    ],
    "POST /v1/nodes/{name}/restore": [
        Row("/v1/nodes/machine/restore", FORBIDDEN, FORBIDDEN, {}),
    ],
    "GET /v1/runs": [
        Row("/v1/runs", DONE, DONE),
        Row("/v1/runs?namespace=known-space&limit=1000", DONE, DONE),
        Row(f"/v1/runs?owner={OWNER}", DONE, DONE),
    ],
    "GET /v1/runs/{namespace}/{name}": [
        Row("/v1/runs/known-space/known-gpus", ABSENT, DONE),
        Row("/v1/runs/known-space/known-gpus?wait=1ms", ABSENT, DONE),
        # A similar name: no suggestion may reveal the right one.
        Row("/v1/runs/known-space/nown-gpus", ABSENT, ABSENT),
    ],
    "PUT /v1/runs/{namespace}/{name}": [
        Row("/v1/runs/known-space/known-gpus", FORBIDDEN, FORBIDDEN, THEIR_RUN),
        Row("/v1/runs/known-space/known-gpus?dryRun=true", FORBIDDEN, FORBIDDEN, THEIR_RUN),
        # The name is taken while the run lives, and can never be paid for by another owner later.
        Row("/v1/runs/known-space/known-gpus", {409, 422}, FORBIDDEN, STOLEN_RUN),
    ],
    "POST /v1/runs/{namespace}/{name}/cancel": [
        Row("/v1/runs/known-space/known-gpus/cancel", ABSENT, FORBIDDEN, {}),
        Row("/v1/runs/known-space/known-gpus/cancel?dryRun=true", ABSENT, FORBIDDEN, {}),
    ],
    "GET /v1/budgets": [
        Row("/v1/budgets", DONE, DONE),
        Row(f"/v1/budgets?owner={OWNER}", DONE, DONE),
    ],
    "GET /v1/budgets/{namespace}/{name}": [
        Row("/v1/budgets/known-space/known-budget", ABSENT, DONE),
        Row("/v1/budgets/known-space/nown-budget", ABSENT, ABSENT),
    ],
    "PUT /v1/budgets/{namespace}/{name}": [
        Row("/v1/budgets/known-space/known-budget", FORBIDDEN, FORBIDDEN, BUDGET),
    ],
    "DELETE /v1/budgets/{namespace}/{name}": [
        Row("/v1/budgets/known-space/known-budget", FORBIDDEN, FORBIDDEN),
    ],
    "POST /v1/budgets/{namespace}/{name}/rotate": [
        Row("/v1/budgets/known-space/known-budget/rotate", FORBIDDEN, FORBIDDEN, {"envelope": "h100"}),
    ],
    "GET /v1/envelopes": [Row("/v1/envelopes", DONE, DONE)],
    "GET /v1/leases": [
        Row("/v1/leases", DONE, DONE),
        Row("/v1/leases?run=known-space/known-gpus", DONE, DONE),
    ],
    "GET /v1/leases/{id}": [Row("/v1/leases/lease-{run}.0", ABSENT, DONE)],
    "GET /v1/usage": [
        Row("/v1/usage", DONE, DONE),
        Row("/v1/usage?by=run", DONE, DONE),
        Row(f"/v1/usage?by=envelope&owner={OWNER}", DONE, DONE),
    ],
    "GET /v1/explain/{kind}/{namespace}/{name}": [
        Row("/v1/explain/run/known-space/known-gpus", ABSENT, DONE),
    ],
    "GET /v1/proofs/{kind}/{id}": [
        Row("/v1/proofs/booking/known-held", HIDDEN, FORBIDDEN),
        Row("/v1/proofs/limit/known-limit", HIDDEN, FORBIDDEN),
        Row("/v1/proofs/limit/known-pair", HIDDEN, FORBIDDEN),
        Row("/v1/proofs/token/known-token", HIDDEN, HIDDEN),
        Row("/v1/proofs/record/{held}", HIDDEN, FORBIDDEN),
    ],
    "GET /v1/records": [
        Row("/v1/records", DONE | FORBIDDEN, DONE),
        Row("/v1/records?raw=true", DONE | FORBIDDEN, DONE | FORBIDDEN),
        Row("/v1/records?from={held}&limit=1", DONE | FORBIDDEN, DONE),
        Row("/v1/records?object=booking/known-held", DONE | HIDDEN, DONE, nobody=FORBIDDEN),
        Row("/v1/records?object=limit/known-limit", DONE | HIDDEN, DONE, nobody=FORBIDDEN),
        Row("/v1/records?object=booking/known-held&raw=true", DONE | HIDDEN, DONE | FORBIDDEN),
    ],
    "GET /v1/tokens": [Row("/v1/tokens", FORBIDDEN, FORBIDDEN)],
    "POST /v1/tokens": [Row("/v1/tokens", FORBIDDEN, FORBIDDEN, TOKEN)],
    "DELETE /v1/tokens/{name}": [Row("/v1/tokens/known-token", FORBIDDEN, FORBIDDEN)],
}


class Tenants(unittest.TestCase):
    """A server with a victim, and callers who must learn nothing and change nothing."""

    @classmethod
    def setUpClass(cls) -> None:
        cls.sandbox = rig.Sandbox()
        cls.addClassCleanup(cls.sandbox.close)
        backup = str(cls.sandbox.home / "backup")
        with cls.sandbox.up() as server:
            assert server.command("ledger", "backup", "--out", backup).code == 0
        # Fences after a restore are long numbers, which do not occur in an answer by chance.
        cls.sandbox.ok("ledger", "restore", backup, "--yes", "--store", str(cls.sandbox.data))
        cls.server = server = cls.sandbox.up()
        limits: Dict[str, Dict[str, Any]] = {
            "everything": {"slots": 500},
            "shared": {"class": "shared", "slots": 1},
            "known-limit": {"tenant": TENANT, "slots": 77},
            "known-pair": {"tenant": TENANT, "class": CLASS, "slots": 55},
        }
        for name, spec in limits.items():
            server.must("PUT", f"/v1/limits/{name}", rig.limit(name, **spec))
        server.must("PUT", "/v1/nodes/machine", NODE)
        server.must("PUT", "/v1/nodes/gpus", GPU_NODE)
        server.must("PUT", "/v1/budgets/known-space/known-budget", BUDGET)
        gpus = server.must("PUT", "/v1/runs/known-space/known-gpus", THEIR_RUN)
        cls.run_record = str(gpus["record"])
        cls.victim = server.token("known-token", "use", [TENANT], [OWNER])
        cls.intruder = server.token("intruder", "use", ["acme"], ["acme"])
        cls.viewer = server.token("viewer", "view", [])
        hour = 3_600_000
        held = {**THEIRS, "ttlMs": hour}
        answer = server.ask_tcp("PUT", "/v1/bookings/known-held", held, token=cls.victim).json()
        cls.held = str(answer["record"])
        shared = {"class": "shared", "tenant": TENANT, "ttlMs": hour}
        other = server.must("PUT", "/v1/bookings/known-shared", shared)
        server.must("PUT", "/v1/bookings/known-queued", {**shared, "waitMs": hour})
        cls.fences = [str(answer["fence"]), str(other["fence"])]
        run = {**THEIRS, "command": "/bin/echo", "args": [OUTPUT]}
        server.must("PUT", "/v1/executions/known-run", run)
        cls.ended("/v1/executions/known-run")
        mine = {**MINE, "waitMs": hour}
        queued = server.ask_tcp("PUT", "/v1/bookings/mine", mine, token=cls.intruder)
        assert queued.status == 202, queued.text()
        # Proofs exist only for signed records.
        rig.eventually(lambda: server.must("GET", "/v1/ledger")["checkpoint"]["records"] > answer["record"])

    @classmethod
    def ended(cls, path: str) -> None:
        """Waits for an execution to end."""
        rig.eventually(lambda: cls.server.must("GET", path)["state"] == "ended")

    def test_every_route_has_a_row_and_every_row_a_route(self) -> None:
        described = self.server.must("GET", "/openapi.json")["paths"]
        routes = {f"{method.upper()} {path}" for path in described for method in described[path]}
        self.assertEqual(sorted(routes - set(ROWS)), [], "routes without a row")
        self.assertEqual(sorted(set(ROWS) - routes), [], "rows without a route")
        for route, rows in ROWS.items():
            template = re.sub(r"\\{path\\}", ".+", re.escape(route.split()[1]))
            pattern = re.sub(r"\\{\w+\\}", "[^/]+", template)
            for row in rows:
                self.assertRegex(row.path.split("?")[0], f"^{pattern}$")

    def test_another_tenant_learns_nothing_and_changes_nothing(self) -> None:
        self.attack("the token of another tenant", self.intruder, "use", [MARKER, KNOWN, *self.fences])

    def test_a_view_token_sees_no_fence_and_no_output(self) -> None:
        self.attack("a view token", self.viewer, "view", [OUTPUT, *self.fences])

    def test_a_caller_without_a_token_sees_no_fence_and_no_output_and_changes_nothing(self) -> None:
        self.attack("a caller without a token", None, "nobody", [OUTPUT, *self.fences])

    def test_the_victim_sees_its_own_data(self) -> None:
        # Otherwise the other tests could pass because there is nothing to see.
        for path, expected in (
            ("/v1/bookings", "known-held"),
            ("/v1/bookings/known-held", self.fences[0]),
            ("/v1/limits", "known-limit"),
            ("/v1/runs", "known-gpus"),
            ("/v1/budgets", "known-budget"),
            ("/v1/leases", "known-gpus"),
            ("/v1/usage?by=run", "known-gpus"),
            ("/v1/executions/known-run/logs", OUTPUT),
        ):
            answer = self.server.ask_tcp("GET", path, token=self.victim)
            self.assertIn(expected, answer.text(), path)

    def attack(self, who: str, token: Optional[str], column: str, secrets: List[str]) -> None:
        """Sends every row as one caller; the victim's objects must not change."""
        before = self.victims_objects()
        wrong = []
        for route, rows in ROWS.items():
            for row in rows:
                expected = getattr(row, column)
                if column == "nobody" and expected is None:
                    expected = row.view
                path = row.path.replace("{held}", self.held).replace("{run}", self.run_record)
                method = route.split()[0]
                status, text = self.send(method, path, row.body, token)
                request = f"{who}: {method} {path}"
                if status not in expected:
                    wrong.append(f"{request} was answered {status}, not {sorted(expected)}: {text[:200]}")
                found = leaks(text, path, row.body, secrets)
                if found:
                    wrong.append(f"{request} was answered {status} and revealed {found}")
        self.assertEqual(self.victims_objects(), before, "the victim's objects have changed")
        if wrong:
            self.fail(f"{len(wrong)} wrong answers:\n" + "\n".join(wrong))

    def send(self, method: str, path: str, body: Any, token: Optional[str]) -> Tuple[int, str]:
        """Status and text of an answer; of a stream the text until a pause."""
        if not path.startswith("/v1/events"):
            answer = self.server.ask_tcp(method, path, body, token=token)
            return answer.status, answer.text()
        return stream(self.server, path, token)

    def victims_objects(self) -> Dict[str, Any]:
        """The victim's objects as the operator sees them."""
        objects: Dict[str, Any] = {}
        for name in ("known-held", "known-shared", "known-queued", "known-run"):
            booking = self.server.must("GET", f"/v1/bookings/{name}")
            kept = ("state", "fence", "end", "class", "tenant", "slots", "expiresAt")
            objects[name] = {key: booking.get(key) for key in kept}
        for name in ("known-limit", "known-pair"):
            objects[name] = self.server.must("GET", f"/v1/limits/{name}")["spec"]
        run = self.server.must("GET", "/v1/runs/known-space/known-gpus")
        objects["run"] = (run["spec"], run["status"]["uid"])
        objects["budget"] = self.server.must("GET", "/v1/budgets/known-space/known-budget")["spec"]
        objects["tokens"] = [token["name"] for token in self.server.must("GET", "/v1/tokens")["items"]]
        objects["ledger"] = self.server.must("GET", "/v1/ledger")["key"]
        return objects


def stream(server: rig.Server, path: str, token: Optional[str]) -> Tuple[int, str]:
    """Status and text of a stream of events until it pauses for a second."""
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    connection = rig.connect(server.address, timeout=1.0)
    try:
        connection.request("GET", path, headers=headers)
        response = connection.getresponse()
        read = b""
        try:
            while len(read) < 1_000_000:
                more = response.read1(65536)
                if not more:
                    break
                read += more
        except socket.timeout:
            pass
        return response.status, read.decode("utf-8", "replace")
    finally:
        connection.close()


def leaks(text: str, path: str, body: Any, secrets: List[str]) -> List[str]:
    """The secrets in an answer, except for words that the caller itself sent."""
    sent = re.findall(r"[\w.-]+", f"{path} {json.dumps(body)}")
    for word in sorted(sent, key=len, reverse=True):
        if MARKER in word or word.startswith(KNOWN):
            text = text.replace(word, "")
    return [
        f"{secret} ({text[max(0, text.find(secret) - 60):][:120]!r})"
        for secret in secrets
        if secret in text
    ]
