"""Forgeries: a changed export or proof never verifies; an unchanged one always does (L11).

Every forgery is a good file with one change. `bursar audit verify` must exit 4, or 2 if the result is
neither an export nor a proof. Exit 0 means that a forged file was accepted.
"""

from __future__ import annotations

import copy
import json
import os
import pathlib
import re
import time
import unittest
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Dict, Iterator, List, NamedTuple, Tuple

import rig

#: Exit codes for a forged file: it does not verify, or it is neither an export nor a proof.
REFUSED = (4, 2)

#: Kinds of objects; a proof names one of them.
KINDS = ["record", "booking", "limit", "node", "pod", "token", "budget", "envelope", "run", "lease"]

#: Values of cluster events that say who pays, how much, since when and for how many GPUs.
MONEY = {
    "epochClosed": ("epoch", "accruedGpuMs"),
    "runFunded": ("claims", 0, "envelope"),
    "runDemoted": ("t",),
    "leasesOpened": ("pods", 0, "gpus", 0, 1),
}


class Forgery(NamedTuple):
    """A changed file, and a description of the change."""

    what: str
    data: bytes


class Forgeries(unittest.TestCase):
    """A ledger with records of several kinds, another ledger, and files of both."""

    sandbox: rig.Sandbox
    other: rig.Sandbox

    @classmethod
    def setUpClass(cls) -> None:
        cls.sandbox, cls.other = rig.Sandbox(), rig.Sandbox()
        cls.addClassCleanup(cls.sandbox.close)
        cls.addClassCleanup(cls.other.close)
        cls.key = cls.sandbox.home / "key"
        with cls.sandbox.up() as server:
            server.must("PUT", "/v1/limits/py", rig.limit("py", **{"class": "py", "slots": 3}))
            server.token("reader", "view", [])
            for id, tenant in (("job-1", "victim"), ("job-2", "acme")):
                granted = server.must("PUT", f"/v1/bookings/{id}", {"class": "py", "tenant": tenant})
            server.must("POST", "/v1/bookings/job-2/release", {"fence": granted["fence"]})
            end = cls.spend(server)
        # The window ends while nobody is there, so the events of its end have a time of their own.
        rig.eventually(lambda: time.time() > end)
        with cls.sandbox.up() as server:
            cls.key.write_text(server.must("GET", "/v1/ledger")["key"] + "\n")
            cls.export = server.export("good.jsonl").read_bytes()
            cls.proofs = {
                name: cls.fetch(server, name)
                for name in (
                    "booking/job-1",
                    "booking/job-2",
                    "limit/py",
                    "record/0",
                    "token/reader",
                    "budget/org/q",
                    "run/org/r",
                )
            }
        with cls.other.up() as server:
            server.must("PUT", "/v1/bookings/job-1", {"class": "py", "tenant": "victim"})
            server.must("PUT", "/v1/limits/py", rig.limit("py", **{"class": "py", "slots": 3}))
            cls.other_export = server.export("other.jsonl").read_bytes()
            cls.other_proof = cls.fetch(server, "booking/job-1")

    @classmethod
    def spend(cls, server: rig.Server) -> int:
        """Starts a run, closes an epoch that has paid for it, and returns the end of the next one."""
        labels = {"topology.kubernetes.io/region": "here", "bursar.dev/cluster": "one"}
        labels.update({"bursar.dev/domain": "rack", "bursar.dev/flavor": "g"})
        node = {"metadata": {"name": "n", "labels": labels}, "apiVersion": "v1", "kind": "Node"}
        node["status"] = {"allocatable": {"cpu": "8", "memory": "64Gi", "nvidia.com/gpu": "8"}}
        end = int(time.time()) + 5
        at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(end))
        envelope = {"name": "g", "flavor": "g", "concurrency": 8, "end": at}
        budget = {"owner": "org:a", "envelopes": [envelope]}
        run = {"owner": "org:a", "flavor": "g", "totalGPUs": 8, "podGPUs": 4}
        objects = [node]
        for kind, name, spec in (("Budget", "q", budget), ("Run", "r", run)):
            metadata = {"namespace": "org", "name": name}
            one = {"apiVersion": "bursar.dev/v1alpha1", "kind": kind, "metadata": metadata, "spec": spec}
            objects.append(one)
        server.must("POST", "/v1/apply", {"objects": objects})
        key = {"Idempotency-Key": "rotate-1"}
        server.must("POST", "/v1/budgets/org/q/rotate", {"envelope": "g"}, headers=key)
        return end

    @classmethod
    def fetch(cls, server: rig.Server, name: str) -> bytes:
        """A proof, written by the command."""
        path = server.sandbox.home / "fetched.proof"
        ended = server.command("audit", "proof", name, "--out", str(path))
        if ended.code != 0:
            raise AssertionError(f"the proof of {name} failed: {ended.stderr}")
        return path.read_bytes()

    def verify(self, forgery: Forgery, directory: pathlib.Path) -> int:
        """Exit code of an auditor who has not seen this ledger before."""
        directory.mkdir()
        (directory / "file").write_bytes(forgery.data)
        state = {"XDG_STATE_HOME": str(directory / "state")}
        ended = self.sandbox.run(
            "audit", "verify", str(directory / "file"), "--key", str(self.key), environment=state
        )
        return ended.code

    def refuse(self, forgeries: List[Forgery], originals: List[bytes]) -> None:
        """Asserts that none of these verifies."""
        self.assertGreater(len(forgeries), 0)
        base = self.sandbox.home / self.id()
        base.mkdir()
        changed = [forgery for forgery in forgeries if forgery.data not in originals]
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            directories = (base / str(number) for number in range(len(changed)))
            codes = list(pool.map(self.verify, changed, directories))
        wrong = [
            f"exit {code}: {forgery.what}"
            for forgery, code in zip(changed, codes)
            if code not in REFUSED
        ]
        if wrong:
            shown = "\n".join(wrong[:40])
            self.fail(f"{len(wrong)} of {len(changed)} forgeries were not refused:\n{shown}")
        print(f"{len(changed)} forgeries ... ", end="", flush=True)

    def test_untouched_files_verify(self) -> None:
        for name, data in {"export": self.export, **self.proofs}.items():
            place = self.sandbox.home / f"good-{name.replace('/', '-')}"
            self.assertEqual(self.verify(Forgery(name, data), place), 0, name)

    def test_no_line_of_an_export_can_be_dropped_doubled_swapped_or_edited(self) -> None:
        lines = self.export.splitlines(keepends=True)
        forgeries = []
        for index, line in enumerate(lines):
            before, after = lines[:index], lines[index + 1 :]
            name = f"line {index + 1} ({line[:20]!r})"
            forgeries.append(forge(f"{name} dropped", before + after))
            forgeries.append(forge(f"{name} doubled", before + [line, line] + after))
            if after:
                swapped = before + [after[0], line] + after[1:]
                forgeries.append(forge(f"{name} swapped with the next", swapped))
            forgeries.append(forge(f"{name} emptied", before + [b"{}\n"] + after))
            forgeries.append(forge(f"everything from {name} on cut off", before))
            forgeries.append(forge(f"{name} cut in half", before + [line[: len(line) // 2]]))
            for what, changed in members(line):
                forgeries.append(forge(f"{name}: {what}", before + [changed] + after))
        self.refuse(forgeries, [self.export])

    def test_no_sum_payer_time_or_width_of_the_cluster_can_be_changed(self) -> None:
        lines = self.export.splitlines(keepends=True)
        forgeries = []
        found = set()
        for index, line in enumerate(lines):
            record = json.loads(line)
            for number, event in enumerate(record.get("ev", [])):
                (kind,) = event
                path = ("ev", number, kind, *MONEY.get(kind, ()))
                if kind not in MONEY or path not in paths(record):
                    continue
                found.add(kind)
                changed = [compact(edit) for what, edit in edits(record, path) if what == "edited"]
                forgeries.append(forge(f"{kind} edited", lines[:index] + changed + lines[index + 1 :]))
        self.assertEqual(found, set(MONEY), "the ledger has no such events")
        self.refuse(forgeries, [self.export])

    def test_data_without_a_signature_does_not_verify(self) -> None:
        lines = self.export.splitlines(keepends=True)
        records = [line for line in lines if b'"seq":' in line[:20]]
        header, signed = lines[0], lines[len(records) + 1 :]
        newest = json.loads(records[-1])
        invented = []
        for number in (1, 2):
            record = {**newest, "seq": newest["seq"] + number, "t": newest["t"] + number}
            record["cmd"] = {"resume": {"wall": record["t"]}}
            record["ev"] = [{"resumed": {"wall": record["t"]}}]
            invented.append(json.dumps(record, separators=(",", ":")).encode() + b"\n")
        edited = [record.replace(b"victim", b"robber") for record in records]
        other = self.other_export.splitlines(keepends=True)
        others_signed = [line for line in other if b'"seq":' not in line[:20]][1:]
        forgeries = [
            forge("the header alone", [header]),
            forge("records without a signature", [header] + records),
            forge("edited records without a signature", [header] + edited),
            forge("edited records with the old signature", [header] + edited + signed),
            forge("an invented record before the signature", [header] + records + invented[:1] + signed),
            forge("an invented record at the end", lines + invented[:1]),
            forge("two invented records at the end", lines + invented),
            forge("only invented records", [header] + invented),
            forge("the signature of another ledger", [header] + records + others_signed),
            forge("signatures of both ledgers", lines + others_signed),
            forge("the records of another ledger", [other[0]] + other[1:-1] + signed[-1:]),
            forge("another ledger as a whole", other),
            forge("two exports in one file", lines + lines),
            forge("nothing", []),
            forge("an empty line", [b"\n"]),
        ]
        self.refuse(forgeries, [self.export])

    def test_no_byte_of_a_checkpoint_can_be_changed(self) -> None:
        forgeries: List[Forgery] = []
        chosen = rig.random_of("checkpoint")
        for name, data in (("export", self.export), ("proof", self.proofs["booking/job-1"])):
            text = data.decode()
            note = re.search(r'"checkpoint":"((?:[^"\\]|\\.)*)"', text)
            assert note is not None
            for at in chosen.sample(range(*note.span(1)), 100):
                # Not the letter of an escape, because the result would not be JSON.
                if not re.match(r"[\w+/=]", text[at]) or text[at - 1] == "\\":
                    continue
                new = "B" if text[at] == "A" else "A"
                what = f"{name}: character {at - note.start(1)} of the checkpoint is {new}"
                changed = text[:at] + new + text[at + 1 :]
                forgeries.append(Forgery(what, changed.encode()))
        self.refuse(forgeries, [])

    def test_no_member_of_a_proof_can_be_changed(self) -> None:
        forgeries = []
        for name, data in self.proofs.items():
            proof = json.loads(data)
            for what, changed in members(data):
                if allowed(proof, what):
                    continue
                forgeries.append(Forgery(f"proof of {name}: {what}", changed))
            for part in (1, 2, 3):
                forgeries.append(Forgery(f"proof of {name} cut", data[: len(data) * part // 4]))
        good, other = (json.loads(data) for data in (self.proofs["booking/job-1"], self.other_proof))
        for member in good:
            mixed = {**good, member: other[member]}
            if member != "keys":
                forgeries.append(Forgery(f"`{member}` of another ledger", compact(mixed)))
        forgeries.append(Forgery("a proof of another ledger", self.other_proof))
        self.refuse(forgeries, list(self.proofs.values()))

    def test_a_proof_says_that_records_may_have_been_left_out(self) -> None:
        proof = json.loads(self.proofs["booking/job-2"])
        self.assertEqual(len(proof["records"]), 2)
        path = self.sandbox.home / "half.proof"
        path.write_bytes(compact({**proof, "records": proof["records"][:1]}))
        ended = self.sandbox.run("audit", "verify", str(path), "--key", str(self.key))
        self.assertIn("not checked: ", ended.stdout + ended.stderr)

    def test_a_proof_verifies_only_for_the_objects_of_its_records(self) -> None:
        kinds = [*KINDS, "wedding", "tenant", "class", "Booking", ""]
        forgeries = []
        for name in ("booking/job-1", "limit/py", "token/reader", "run/org/r"):
            proof = json.loads(self.proofs[name])
            seq = proof["records"][0]["seq"]
            # Names that occur somewhere in the text of the record, and one of another booking.
            text = proof["records"][0]["bytes"]
            names = {"root", "job-1", "victim", "py", "reader", "view", "reserve", "id", str(seq)}
            names |= {"org/r", "org/q", "org:a"}
            names = {other for other in names if f'"{other}"' in text} | {"job-2", ""}
            for claimed in [f"{kind}/{other}" for kind in kinds for other in sorted(names)]:
                if claimed not in (name, f"record/{seq}"):
                    what = f"proof of {name} claims {claimed}"
                    forgeries.append(Forgery(what, compact({**proof, "object": claimed})))
        self.refuse(forgeries, [])


def allowed(proof: Dict[str, Any], what: str) -> bool:
    """Whether a change leaves a valid proof: `keys` only proposes keys to readers without one, and
    one of several records can be left out, which the output says."""
    shorter = len(proof["records"]) > 1 and re.fullmatch(r"records\.\d dropped", what) is not None
    return shorter or what.startswith("keys")


def forge(what: str, lines: List[bytes]) -> Forgery:
    """A forgery of these lines."""
    return Forgery(what, b"".join(lines))


def compact(value: Any) -> bytes:
    """JSON in the format of the program."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode() + b"\n"


def members(line: bytes) -> Iterator[Tuple[str, bytes]]:
    """Changes of the JSON in a line: each member dropped, edited and renamed; each item of a list
    dropped, edited and doubled."""
    whole = json.loads(line)
    for path in paths(whole):
        for what, changed in edits(whole, path):
            yield f"{'.'.join(map(str, path))} {what}", compact(changed)


def paths(value: Any, prefix: Tuple[Any, ...] = ()) -> Iterator[Tuple[Any, ...]]:
    """Paths of all values in a JSON value."""
    items: List[Tuple[Any, Any]] = []
    if isinstance(value, dict):
        items = list(value.items())
    elif isinstance(value, list):
        items = list(enumerate(value))
    for key, inner in items:
        yield (*prefix, key)
        yield from paths(inner, (*prefix, key))


def edits(whole: Any, path: Tuple[Any, ...]) -> Iterator[Tuple[str, Any]]:
    """All changes of one value in a JSON value."""

    def change() -> Tuple[Any, Any]:
        changed = copy.deepcopy(whole)
        inside = changed
        for key in path[:-1]:
            inside = inside[key]
        return changed, inside

    key = path[-1]
    changed, inside = change()
    old = inside.pop(key)
    yield "dropped", changed
    changed, inside = change()
    inside[key] = another(old)
    yield "edited", changed
    changed, inside = change()
    if isinstance(inside, list):
        inside.insert(key, old)
        yield "doubled", changed
    else:
        renamed: Dict[str, Any] = {f"{name}2" if name == key else name: inside[name] for name in inside}
        inside.clear()
        inside.update(renamed)
        yield "renamed", changed


def another(value: Any) -> Any:
    """A different value of the same type."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + 1
    if isinstance(value, str):
        last = "b" if value.endswith("a") else "a"
        return value[:-1] + last
    if isinstance(value, list):
        return []
    return {}
