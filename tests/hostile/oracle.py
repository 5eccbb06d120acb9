"""The oracle: judges a run only by its export and by the answers that clients noted.

It is written from the rules of bookings (S1 to S7) and of the ledger (L1, L5, L7), not from the code.
It replays the events one by one; a contradiction to a rule or to a noted answer is a finding.
"""

from __future__ import annotations

import datetime
import json
import pathlib
from dataclasses import dataclass, field
from typing import Any, Dict, List, NamedTuple, Optional, Set, Tuple

#: Events that do not change the use of slots.
_WITHOUT_SLOTS = {
    "genesis",
    "level",
    "keyRotated",
    "nodeSet",
    "nodeDropped",
    "unsettled",
    "tokenCreated",
    "tokenRevoked",
    "anchored",
    "keyed",
    "marketSet",
    "marketLabelled",
    "marketDigested",
}

#: Maximum number of records in one commit, with the few clients of a run: the answer to a write may
#: reflect a state that is this many records newer than its own.
_BATCH_MAX = 64

#: Maximum number of findings, because one broken rule has many consequences.
_FINDINGS_MAX = 20


class Note(NamedTuple):
    """One request of a client and its answer."""

    #: Number of restores before it was sent.
    generation: int
    #: Operation: reserve, release, renew, cancel, force, look or limit.
    what: str
    #: Name of the booking or limit.
    name: str
    #: Fence in the request, or slots of the limit.
    sent: Optional[int]
    #: HTTP status; `None` without an answer.
    status: Optional[int]
    #: Body of the answer.
    body: Dict[str, Any]

    @property
    def record(self) -> int:
        """Last record that the answer reflects."""
        return int(self.body.get("record", -1))


@dataclass
class Booking:
    """A booking according to the events."""

    class_: str
    tenant: str
    slots: int
    lane: Tuple[str, str, str]
    ttl: int
    reserved_seq: int
    #: Earliest time at which its wait may end.
    wait_until: int
    #: Earliest time at which it may expire.
    patience: int = 0
    fence: Optional[int] = None
    granted_seq: Optional[int] = None
    end: Optional[str] = None
    ended_seq: Optional[int] = None
    ended_at: int = 0


@dataclass
class Replay:
    """State according to the events of an export."""

    bookings: Dict[str, Booking] = field(default_factory=dict)
    limits: Dict[str, Dict[str, Any]] = field(default_factory=dict)
    #: For each limit a list of (record, slots); -1 means deleted, `None` unbounded.
    limit_history: Dict[str, List[Tuple[int, Optional[int]]]] = field(default_factory=dict)
    used: Dict[Tuple[str, ...], int] = field(default_factory=dict)
    lanes: Dict[Tuple[str, str, str], List[str]] = field(default_factory=dict)
    #: Records with the event `restored`.
    restores: List[int] = field(default_factory=list)
    last_fence: int = 0
    #: Number of times that a limit was lowered below its use; a run must have some.
    lowered_below_use: int = 0
    findings: List[str] = field(default_factory=list)

    def find(self, finding: str) -> None:
        """Adds a finding."""
        if len(self.findings) < _FINDINGS_MAX:
            self.findings.append(finding)

    def holders(self) -> Set[str]:
        """Bookings that hold slots at the end."""
        held = (item for item in self.bookings.items() if item[1].fence is not None)
        return {id for id, booking in held if booking.end is None}

    # The events, one by one.

    def replay(self, records: List[Dict[str, Any]]) -> None:
        """Replays the records of an export."""
        last_time = 0
        for index, record in enumerate(records):
            seq, at = record["seq"], record["t"]
            if seq != index:
                self.find(f"record {seq} is in place of record {index}: the sequence has a gap")
            if at < last_time:
                self.find(f"record {seq}: time went back from {last_time} to {at}")
            last_time = at
            for event in record["ev"]:
                ((kind, body),) = event.items()
                self._event(seq, at, kind, body)

    def _event(self, seq: int, at: int, kind: str, body: Dict[str, Any]) -> None:
        at = body.get("t", at)
        if kind in ("granted", "renewed", "ended") and body["id"] not in self.bookings:
            self.find(f"record {seq}: {body['id']} is {kind} but was never reserved")
        elif kind == "reserved":
            self._reserved(seq, at, body)
        elif kind == "granted":
            self._grant(seq, at, body["id"], body["fence"])
        elif kind == "renewed":
            booking = self.bookings[body["id"]]
            booking.patience = max(booking.patience, body["expires"])
        elif kind == "ended":
            self._ended(seq, at, body)
        elif kind == "resumed":
            self._resumed(at)
        elif kind == "limitSet":
            self._limit(seq, body["name"], body)
        elif kind == "limitDropped":
            self._limit(seq, body["name"], None)
        elif kind == "restored":
            self.restores.append(seq)
        elif kind not in _WITHOUT_SLOTS:
            self.find(f"record {seq}: the oracle does not know the event `{kind}`")

    def _reserved(self, seq: int, at: int, body: Dict[str, Any]) -> None:
        id = body["id"]
        if id in self.bookings:
            self.find(f"record {seq}: {id} was reserved a second time")
        lane = (body["class"], body["tenant"], body.get("priority", "normal"))
        wait_until = at + body.get("waitMs", 0)
        self.bookings[id] = Booking(
            body["class"], body["tenant"], body["slots"], lane, body["ttlMs"], seq, wait_until
        )
        self.lanes.setdefault(lane, []).append(id)
        if "fence" in body:
            self._grant(seq, at, id, body["fence"])

    def _grant(self, seq: int, at: int, id: str, fence: int) -> None:
        booking = self.bookings[id]
        if fence <= self.last_fence:
            self.find(f"record {seq}: fence {fence} of {id} is not above {self.last_fence}")
        self.last_fence = max(self.last_fence, fence)
        if booking.fence is not None or booking.end is not None:
            self.find(f"record {seq}: {id} was granted again")
            return
        lane = self.lanes[booking.lane]
        if lane[0] != id:
            self.find(f"record {seq}: {id} was granted before {lane[0]} of the same lane")
        lane.remove(id)
        booking.fence, booking.granted_seq, booking.patience = fence, seq, at + booking.ttl
        for key in _counters(booking):
            self.used[key] = self.used.get(key, 0) + booking.slots
            name = self._limit_of(key)
            size = self.limits[name].get("slots") if name else None
            if size is not None and self.used[key] > size:
                self.find(
                    f"record {seq}: {id} was granted, but limit {name} of {size} slots "
                    f"has {self.used[key]} in use ({'/'.join(key)})"
                )

    def _ended(self, seq: int, at: int, body: Dict[str, Any]) -> None:
        id, end = body["id"], body["end"]
        booking = self.bookings[id]
        if booking.end is not None:
            self.find(f"record {seq}: {id} ended twice")
            return
        booking.end, booking.ended_seq, booking.ended_at = end, seq, at
        if booking.fence is None:
            self.lanes[booking.lane].remove(id)
            if end not in ("cancelled", "wait-over", "forced"):
                self.find(f"record {seq}: {id} was waiting but ended as {end}")
            if end == "wait-over" and at < booking.wait_until:
                self.find(f"record {seq}: the wait of {id} ended too early")
            return
        if end == "expired" and at < booking.patience:
            early = booking.patience - at
            self.find(f"record {seq}: {id} expired {early} ms before its holder was overdue")
        for key in _counters(booking):
            self.used[key] -= booking.slots

    def _resumed(self, at: int) -> None:
        """Downtime of the server expires nobody (L5)."""
        for booking in self.bookings.values():
            if booking.end is not None:
                continue
            if booking.fence is None:
                booking.wait_until = max(booking.wait_until, at)
            else:
                booking.patience = max(booking.patience, at + booking.ttl)

    # The limits (S1).

    def _limit(self, seq: int, name: str, spec: Optional[Dict[str, Any]]) -> None:
        if spec is None:
            self.limits.pop(name, None)
        else:
            self.limits[name] = spec
        slots = -1 if spec is None else spec.get("slots")
        self.limit_history.setdefault(name, []).append((seq, slots))
        if spec is not None and slots is not None:
            above = (key for key, used in self.used.items() if used > slots)
            self.lowered_below_use += any(self._limit_of(key) == name for key in above)

    def _limit_of(self, key: Tuple[str, ...]) -> Optional[str]:
        """Name of the limit of a counter: a limit that names a value takes precedence over `each`."""
        kind, names = key[0], key[1:]
        members = {"class": ["class"], "tenant": ["tenant"], "pair": ["class", "tenant"]}
        wanted = members.get(kind, [])
        best: Tuple[int, Optional[str]] = (-1, None)
        for name, spec in self.limits.items():
            if [member for member in ("class", "tenant") if member in spec] != wanted:
                continue
            rank = 0
            for weight, member, value in zip((2, 1), wanted, names):
                if spec[member] == {"named": value}:
                    rank += weight
                elif spec[member] != "each":
                    rank = -1
                    break
            best = max(best, (rank, name), key=lambda pair: pair[0])
        return best[1]

    # The answers.

    def compare(self, notes: List[Note]) -> None:
        """Checks that an answer implies its record (L1); answers that a restore made void are left out."""
        fences: Dict[int, str] = {}
        highest: Dict[int, int] = {}
        requested: Set[str] = set()
        for note in notes:
            if note.what == "reserve":
                requested.add(note.name)
            fence = note.body.get("fence")
            if fence is not None and note.body.get("state") in ("granted", "ended"):
                if fences.setdefault(fence, note.name) != note.name:
                    self.find(f"fence {fence} was reported for {note.name} and for {fences[fence]}")
                highest[note.generation] = max(highest.get(note.generation, 0), fence)
            if note.status is None or note.record < 0:
                continue
            if note.generation < len(self.restores):
                if note.record >= self.restores[note.generation] - _BATCH_MAX:
                    continue
            self._answer(note)
        for id in set(self.bookings) - requested:
            self.find(f"{id} is in the export, but no client requested it")
        for generation, restored in enumerate(self.restores):
            before = max((highest.get(g, 0) for g in range(generation + 1)), default=0)
            for id, booking in self.bookings.items():
                if (booking.granted_seq or 0) > restored and (booking.fence or 0) <= before:
                    self.find(
                        f"{id} got fence {booking.fence} after restore {generation + 1}, "
                        f"although {before} was reported before it"
                    )

    def _answer(self, note: Note) -> None:
        answer = f"{note.what} {note.name} was answered {note.status} as of record {note.record}"
        if note.what == "limit":
            self._limit_answer(note, answer)
            return
        booking = self.bookings.get(note.name)
        known = booking is not None and booking.reserved_seq <= note.record
        code = note.body.get("code")
        if code in ("not-found", "over-limit", "never-fits", "queue-full"):
            if known and (note.what == "reserve" or code == "not-found"):
                self.find(f"{answer} ({code}), but it was recorded before")
            return
        state = note.body.get("state")
        if state is None:
            self._refused(note, booking, answer)
            return
        if booking is None or not known:
            self.find(f"{answer} ({state}), but no such record is in the export")
            return
        fence = note.body.get("fence")
        if fence is not None and fence != booking.fence:
            self.find(f"{answer} with fence {fence}; the export says {booking.fence}")
        granted = booking.granted_seq is not None and booking.granted_seq <= note.record
        ended = booking.ended_seq is not None and booking.ended_seq <= note.record
        # The answer to a write has its own record and the present state, which may be newer.
        is_write = note.what != "look"
        if state == "granted" and not (granted or is_write and booking.granted_seq is not None):
            grant = booking.granted_seq
            self.find(f"{answer} (granted); the export has its grant in record {grant}")
        end = note.body.get("end")
        if state == "ended" and (end != booking.end or not (ended or is_write)):
            self.find(f"{answer} (ended, {end}); the export says {booking.end}")
        if state == "queued" and (granted or ended):
            self.find(f"{answer} (queued), but it was granted or ended before")
        expires = note.body.get("expiresAt")
        if state == "granted" and expires is not None and booking.end == "expired":
            if booking.ended_at < _milliseconds(expires):
                self.find(f"{answer}, valid until {expires}, but it expired before that")

    def _refused(self, note: Note, booking: Optional[Booking], answer: str) -> None:
        """Checks that a holder with the right fence is refused only if its booking has ended."""
        if note.body.get("code") != "stale-fence" or booking is None:
            return
        right = note.sent is not None and note.sent == booking.fence
        if right and (booking.ended_seq is None or booking.ended_seq > note.record):
            self.find(f"{answer} (stale-fence), but the holder had the right fence")

    def _limit_answer(self, note: Note, answer: str) -> None:
        if note.status not in (200, 201):
            return
        slots: Optional[int] = -1
        for seq, value in self.limit_history.get(note.name, []):
            if seq <= note.record:
                slots = value
        if slots != note.sent:
            self.find(f"{answer} with {note.sent} slots; the export says {slots}")


def judge_records(records: List[Dict[str, Any]], notes: List[Note]) -> Replay:
    """Judges records by the rules and by the answers of clients."""
    replay = Replay()
    replay.replay(records)
    replay.compare(notes)
    return replay


def read(path: pathlib.Path) -> List[Dict[str, Any]]:
    """Records of an export, without checkpoints."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return [line for line in map(json.loads, lines) if "seq" in line]


def judge(path: pathlib.Path, notes: List[Note]) -> Replay:
    """Judges an export by the rules and by the answers of clients."""
    return judge_records(read(path), notes)


def _counters(booking: Booking) -> List[Tuple[str, ...]]:
    """Counters of a booking: everything, its tenant, its class, and both."""
    return [
        ("everything",),
        ("tenant", booking.tenant),
        ("class", booking.class_),
        ("pair", booking.class_, booking.tenant),
    ]


def _milliseconds(text: str) -> int:
    moment = datetime.datetime.fromisoformat(text.replace("Z", "+00:00"))
    return round(moment.timestamp() * 1000)
