"""Slots of a Bursar server, in one file without dependencies, for Python 3.9 and later.

    import bursar

    with bursar.slot("python", tenant="a", wait=30) as slot:
        work()

A slot is reserved, renewed by a thread beside the work, and released at any end of the work.
`ResourceAllocationRepository` keeps the interface of the repository that it replaces.

Promises: a call that may have been done is repeated under the same id, so nothing is held twice.
With an unavailable server nothing is admitted, and the error is `Unavailable`. `slot.lost` is set
before the server can grant the slot to another client, and a block whose slot was lost ends with an
error. A release is repeated until the server answers or the deadline of the booking passes, while
the process lives.

Not included: TLS, the pinning of a ledger's key (the command line does that), and calls that a
holder of slots does not need; `Client.call` can make those.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import dataclasses
import datetime
import fractions
import functools
import http.client
import json
import logging
import math
import os
import random
import re
import socket
import threading
import time
import urllib.parse
import uuid
import weakref
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple, Type
from typing import TypeVar, Union

__all__ = [
    "Allocation",
    "AsyncSlot",
    "BursarError",
    "Client",
    "Execution",
    "Fenced",
    "Lost",
    "NotGranted",
    "OutcomeUnknown",
    "Refused",
    "ResourceAllocationRepository",
    "Slot",
    "SyncResourceAllocationRepository",
    "Unavailable",
    "async_slot",
    "cancel",
    "default_client",
    "execution",
    "slot",
    "submit",
]

Json = Dict[str, Any]
Quantity = Union[str, int]
Result = TypeVar("Result")

_log = logging.getLogger("bursar")

#: Maximum time for an answer, repeats included.
TIMEOUT_SECONDS = 30.0
#: Duration of a grant without renewal.
TTL_SECONDS = 60.0
#: Maximum ttl and maximum wait of a server.
DAY_SECONDS = 86_400.0
#: Wait of one request for the change of a queued booking.
LOOK_SECONDS = 30.0
#: Timeout of one attempt to renew, so that other slots are renewed in time.
RENEWAL_SECONDS = 5.0
#: Maximum time that the end of a block, or of the process, waits for its releases.
RELEASE_SECONDS = 10.0
#: Minimum time of the first attempt, also after the deadline: the booking may still exist.
RELEASE_SECONDS_FIRST = 2.0
#: Maximum time to leave a queue after an interrupt.
LEAVE_SECONDS = 5.0
LEAVE_ATTEMPTS_MAX = 3
#: Maximum number of attempts of a call: enough for an outage of some seconds.
ATTEMPTS_MAX = 6
#: Pauses between attempts: the first, and the longest.
PAUSE_SECONDS_FIRST, PAUSE_SECONDS_LAST = 0.1, 5.0
#: Maximum number of kept connections.
IDLE_MAX = 8
#: Maximum number of operations of a batch, a bound of the server.
BATCH_MAX = 1_024
#: Maximum number of items of a page, a bound of the server.
PAGE_MAX = 1_000
#: Maximum size of an answer: ten times a page of the largest items.
ANSWER_BYTES_MAX = 64 << 20
#: Bytes of an answer read at a time.
PIECE_BYTES = 64 << 10
#: Maximum size of a token file; tokens have less than a hundred bytes.
TOKEN_BYTES_MAX = 4_096
#: Largest integer that every JSON reader reads exactly.
INTEGER_MAX = (1 << 53) - 1
#: Port of an address without one.
PORT_DEFAULT = 7171


# Errors


class BursarError(Exception):
    """The server refused or did not answer. `problem` is the object of the server (RFC 9457)."""

    def __init__(self, problem: Mapping[str, Any]) -> None:
        # The problem is the only argument, so that errors survive pickling between processes.
        super().__init__(problem)
        self.problem: Json = dict(problem)
        self.code: str = str(problem.get("code", "unknown"))
        self.status: Optional[int] = problem.get("status")
        self.detail: str = str(problem.get("detail") or problem.get("title") or self.code)
        wait_ms = problem.get("retryAfterMs")
        self.retry_after: Optional[float] = None if wait_ms is None else wait_ms / 1_000

    def __str__(self) -> str:
        return self.detail


class Refused(BursarError, ValueError):
    """A limit is reached. The attributes describe the first limit that binds, `limits` has all."""

    def __init__(self, problem: Mapping[str, Any]) -> None:
        super().__init__(problem)
        self.limits: List[Json] = list(problem.get("limits", []))
        self.holders: List[Json] = list(problem.get("holders", []))
        first = self.limits[0] if self.limits else {}
        self.limit: Optional[str] = first.get("name")
        self.dimension: Optional[str] = first.get("dimension")
        self.size: Optional[int] = first.get("size")
        self.in_use: Optional[int] = first.get("inUse")
        self.waiting: Optional[int] = first.get("waiting")

    def __str__(self) -> str:
        return f"Resource limit exceeded: {self.detail}"


class Unavailable(BursarError):
    """There is no server, or it accepts no requests now. Nothing was admitted."""


class OutcomeUnknown(BursarError):
    """The call may have been done. Repeating it under the same id is safe."""


class Fenced(BursarError):
    """The caller no longer holds the slot and must stop the work."""


class NotGranted(BursarError):
    """The booking ended before it was granted; `end` is the kind of end."""

    def __init__(self, problem: Mapping[str, Any]) -> None:
        super().__init__(problem)
        self.end: Optional[str] = problem.get("end")


_ERRORS: Dict[str, Type[BursarError]] = {
    "over-limit": Refused,
    "never-fits": Refused,
    "stale-fence": Fenced,
    "unavailable": Unavailable,
    "not-leader": Unavailable,
    "busy": Unavailable,
    "disk-low": Unavailable,
    "slow-down": Unavailable,
    "outcome-unknown": OutcomeUnknown,
}
#: Codes of temporary errors; the last two are codes of this client for a broken connection.
_WORTH_REPEATING = frozenset(
    ["busy", "unavailable", "not-leader", "slow-down", "outcome-unknown", "lost", "unreachable"]
)
#: Codes after which the call may have been done.
_UNKNOWN = frozenset(["outcome-unknown", "lost", "timeout"])
#: Codes of the server for a booking that is no longer held.
_ENDED = frozenset(["stale-fence", "not-found"])


def _error_of(problem: Mapping[str, Any]) -> BursarError:
    return _ERRORS.get(str(problem.get("code")), BursarError)(problem)


def _is_temporary(error: BursarError) -> bool:
    """True unless the server answered with a decision."""
    return error.status is None or error.status >= 500 or error.code == "slow-down"


# Slots


class Lost(threading.Event):
    """Set once a slot is no longer held. `reason` is `fenced` if the server ended the booking, and
    `unrenewed` if no renewal succeeded in time. `problem` is the answer of the server or the error
    of the call; for an unrenewed slot its `since` is the time of the last renewal."""

    def __init__(self) -> None:
        super().__init__()
        self.reason: Optional[str] = None
        self.problem: Json = {}
        self._calls: List[Callable[[], None]] = []
        self._guard = threading.Lock()

    def tell(self, reason: str, problem: Mapping[str, Any]) -> bool:
        """Sets the event with a reason. Only the first call has an effect and returns true."""
        with self._guard:
            if self.is_set():
                return False
            self.reason, self.problem = reason, dict(problem)
            self.set()
            calls, self._calls = self._calls, []
        for call in calls:
            call()
        return True

    def then(self, call: Callable[[], None]) -> None:
        """Calls `call` when the event is set, on the thread that sets it, or at once."""
        with self._guard:
            if not self.is_set():
                self._calls.append(call)
                return
        call()


class Slot:
    """A slot that is reserved, held and released once.

    Made by `Client.slot`. As a context manager it is released at any end of the block. A block that
    ends without an error although the slot was lost raises `Fenced`, because another client may
    have worked at the same time. At the end of the block an unavailable server is waited for, at
    most 10 seconds; then a warning is logged, and a thread repeats the release until the deadline.
    """

    def __init__(self, client: Client, request: Json, wait: Optional[float], id: str) -> None:
        self.id = id
        self.fence: Optional[int] = None
        self.lost = Lost()
        self._client = client
        self._request = request
        self._path = f"/v1/bookings/{_escaped(id)}"
        self._is_endless = wait is None
        self._ttl = request["ttlMs"] / 1_000
        self._is_renewed = True
        self._pid = os.getpid()
        self._deadline = self._due = 0.0
        self._pause = _Pause()
        # Error of the renewals since the last successful one.
        self._failure: Optional[BursarError] = None
        self._is_given_back = False
        # True once the server knows the booking.
        self._is_answered = False
        self._guard = threading.Lock()
        self._is_held = False
        self._is_given_up = threading.Event()

    def acquire(self) -> Slot:
        """Waits for the grant. Without `with`, call `release` at the end."""
        self._pid = os.getpid()
        try:
            self._reserve()
        except BaseException as error:
            # The wait is over, for example by Ctrl-C, so the booking must end.
            if self._may_remain(error):
                self._leave()
            raise
        return self

    def release(self, outcome: str = "ok", exit_code: Optional[int] = None) -> Json:
        """Releases the slot with the outcome of the work, `ok` or `failed`. Repeats are harmless:
        `applied` in the answer is true if this release had an effect.

        Raises `Fenced` if the slot was lost before, for any answer of the server. An unavailable
        server is waited for, at most 10 seconds; then its error is raised, and a thread repeats the
        release until the deadline of the booking, while the process lives.
        """
        return self._give_back(_given({"outcome": outcome, "exitCode": exit_code}))

    def check(self) -> None:
        """Raises `Fenced` if this process knows that the slot is lost. Makes no call."""
        if os.getpid() != self._pid:
            # A forked child has no renewing thread.
            if not self.held():
                raise Fenced(self._fenced("another process released or lost it"))
        elif self._is_lost():
            raise Fenced(self._fenced(self._why_lost()))

    def held(self) -> bool:
        """Asks the server, for work that must be sure before a write."""
        answer = self._client.call("GET", self._path, query={"fence": self.fence})[1]
        return bool(answer.get("held"))

    def __enter__(self) -> Slot:
        return self.acquire()

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if os.getpid() != self._pid:
            # A forked child that leaves the block must not release the slot of its parent.
            return
        is_well = kind is None or (isinstance(error, SystemExit) and error.code in (None, 0))
        try:
            self.release("ok" if is_well else "failed")
        except Fenced:
            if is_well:
                raise
        except BursarError as failure:
            _log.warning("%s", failure)

    def _give_back(self, how: Json) -> Json:
        """Releases the slot; the error of a lost slot is `Fenced`, for any answer."""
        if self.fence is None:
            raise RuntimeError(f"slot {self.id} was never granted")
        # In a forked child the deadline is not known, because the parent renews.
        is_own = os.getpid() == self._pid
        is_lost = is_own and self._is_lost()
        self._is_given_back = True
        deadline = self._deadline if is_own else _now() + RELEASE_SECONDS
        release = _Release(self, {"fence": self.fence, **how}, deadline)
        try:
            answer = self._client._keeper.give_back(release)
        except BursarError as error:
            if error.code in _ENDED:
                self._lose("fenced", error.problem)
            elif not is_lost:
                raise
            else:
                _log.warning("%s", error)
        else:
            end = answer.get("end")
            if end not in ("expired", "forced") and not is_lost:
                return answer
            detail = ", ".join(filter(None, [f"it was {end}", answer.get("reason")]))
            self._lose("fenced", {**answer, "detail": detail})
        raise Fenced(self._fenced(self._why_lost()))

    def _fenced(self, why: str) -> Json:
        detail = f"slot {self.id} is no longer held: {why}"
        return {"code": "stale-fence", "detail": detail, "cause": self.lost.problem}

    def _is_lost(self) -> bool:
        """True if the slot is lost. A passed deadline makes it lost."""
        if not self._is_given_back and self._deadline <= _now():
            self._lose("unrenewed", self._unrenewed())
        return self.lost.is_set()

    def _lose(self, reason: str, problem: Json) -> None:
        if self.lost.tell(reason, problem):
            _log.warning("slot %s is no longer held: %s", self.id, self._why_lost())

    def _unrenewed(self) -> Json:
        """Problem of a slot whose deadline has passed."""
        nothing = {"code": "unrenewed", "detail": "no renewal was sent; was this process stopped?"}
        problem = nothing if self._failure is None else self._failure.problem
        return {**problem, "since": _clock(self._deadline - self._ttl)}

    def _why_lost(self) -> str:
        problem = self.lost.problem
        detail = str(problem.get("detail") or problem.get("title") or problem.get("code"))
        if self.lost.reason != "unrenewed":
            return detail
        since = f"no renewal has succeeded since {problem.get('since')}"
        return f"{since}, and its ttl of {self._ttl:g} s is over: {detail}"

    def _reserve(self) -> None:
        sent = _now()
        status, booking = self._client._put(
            self._path, self._request, self._is_endless, self._is_given_up
        )
        self._is_answered = True
        while booking.get("state") == "queued":
            self._stop_if_given_up()
            status, booking = self._look()
        if booking.get("state") != "granted":
            raise self._not_granted(booking)
        self._take(booking, status, sent)

    def _look(self) -> Tuple[int, Json]:
        """Waits for a change of the booking. The queue survives a restart of the server, which is
        waited for as long as for an answer."""
        pause, deadline = _Pause(), math.inf
        query, stop = {"wait": f"{LOOK_SECONDS:.0f}s"}, self._is_given_up
        while True:
            try:
                return self._client.call(
                    "GET", self._path, query=query, wait=LOOK_SECONDS, stop=stop
                )
            except Unavailable:
                deadline = min(deadline, _now() + self._client.timeout)
                length = pause.next()
                if _now() + length >= deadline or stop.is_set():
                    raise
                stop.wait(length)

    def _take(self, booking: Json, status: int, sent: float) -> None:
        if not isinstance(booking.get("fence"), int):
            raise self._client._protocol(f"booking {self.id} is granted without a fence")
        self.fence = booking["fence"]
        if status != 201:
            # The time of the grant is not known; a renewal gives a known deadline.
            sent = _now()
            self._client.call("POST", f"{self._path}/renew", self._renewal())
        self._extend(sent)
        with self._guard:
            self._stop_if_given_up()
            self._is_held = True
            if self._is_renewed:
                self._client._keeper.keep(self)

    def _not_granted(self, booking: Json) -> BursarError:
        end = str(booking.get("end", "ended"))
        if end != "wait-over":
            detail = f"booking {self.id} was not granted: {end}"
            return NotGranted({**booking, "code": "not-granted", "detail": detail})
        waited = f"waited {self._request['waitMs'] / 1_000:g} s for {self._request['class']}"
        problem = self._what_binds()
        detail = "; ".join(filter(None, [waited, problem.get("detail")]))
        return Refused({**problem, "code": "wait-over", "detail": detail})

    def _what_binds(self) -> Json:
        """Refusal of the same request without a wait, for the numbers of the limit."""
        path = f"/v1/bookings/{_new_id('slot')}"
        try:
            self._client.call("PUT", path, {**self._request, "waitMs": 0}, query={"dryRun": "true"})
        except BursarError as error:
            return error.problem
        return {}

    def _may_remain(self, error: BaseException) -> bool:
        """True if the server may have a booking for this failed request."""
        if isinstance(error, (Refused, NotGranted, Fenced)):
            return False
        is_refused = isinstance(error, BursarError) and error.code not in _UNKNOWN
        return self._is_answered or not is_refused

    def _stop_if_given_up(self) -> None:
        if self._is_given_up.is_set():
            raise _GivenUp()

    def _give_up(self) -> None:
        """Ends the wait from another thread; the waiting thread then leaves the queue."""
        with self._guard:
            self._is_given_up.set()
            is_held = self._is_held
        with contextlib.suppress(BursarError):
            if is_held:
                self.release("failed")
            else:
                self._briefly("POST", f"{self._path}/cancel", {})

    def _leave(self) -> None:
        """Ends the queued or granted booking."""
        try:
            if not self._is_answered:
                # The answer to a repeat comes after the decision about a request under way.
                self._briefly("PUT", self._path, self._request)
            with contextlib.suppress(BursarError):
                self._briefly("POST", f"{self._path}/cancel", {})
                return
            booking = self._briefly("GET", self._path)
            if booking.get("state") == "granted":
                self._briefly("POST", f"{self._path}/release", {"fence": booking.get("fence")})
        except BursarError as error:
            _log.debug("slot %s is left to its wait or its ttl: %s", self.id, error)

    def _briefly(self, method: str, path: str, body: Optional[Json] = None) -> Json:
        call = self._client.call
        return call(method, path, body, timeout=LEAVE_SECONDS, attempts=LEAVE_ATTEMPTS_MAX)[1]

    def _renewal(self) -> Json:
        return {"fence": self.fence, "ttlMs": self._request["ttlMs"]}

    def _extend(self, sent: float) -> None:
        """Counts the ttl from before the request, so the deadline is never after the server's."""
        self._deadline = sent + self._ttl
        # Random, so that slots that were granted together are not renewed together.
        self._due = sent + self._ttl / 3 * random.uniform(0.8, 1.0)
        self._pause = _Pause()
        self._failure = None

    def _operation(self) -> Json:
        return {"op": "renew", "id": self.id, **self._renewal()}

    def _done(self, _: Json, sent: float) -> None:
        """Handles a successful renewal."""
        self._extend(sent)

    def _fail(self, error: BursarError) -> None:
        """Handles a failed renewal: the slot is lost, or the next renewal is due."""
        if error.code in _ENDED:
            self._lose("fenced", error.problem)
        self._failure = error
        self._due = _now() + self._pause.next()


class AsyncSlot:
    """The same for `async with`. Cancelling the wait leaves the queue."""

    def __init__(self, slot: Slot) -> None:
        self._slot = slot
        self.id = slot.id
        self.lost = slot.lost

    @property
    def fence(self) -> Optional[int]:
        """Number that proves that the slot is held."""
        return self._slot.fence

    def check(self) -> None:
        """Raises `Fenced` if the slot is lost."""
        self._slot.check()

    async def held(self) -> bool:
        """Asks the server whether the slot is held."""
        return await _in_thread(self._slot.held)

    async def wait_lost(self) -> str:
        """Returns the reason when the slot is lost. For use beside the work."""
        loop = asyncio.get_running_loop()
        is_lost = asyncio.Event()

        def wake() -> None:
            with contextlib.suppress(RuntimeError):  # The loop may have been closed meanwhile.
                loop.call_soon_threadsafe(is_lost.set)

        self.lost.then(wake)
        await is_lost.wait()
        return str(self.lost.reason)

    async def __aenter__(self) -> AsyncSlot:
        await _in_thread(self._slot.acquire, self._slot._give_up)
        return self

    async def __aexit__(self, kind: Any, error: Any, trace: Any) -> None:
        await _in_thread(lambda: self._slot.__exit__(kind, error, trace))


def slot(class_: str, **options: Any) -> Slot:
    """A slot of the default client; see `Client.slot`."""
    return default_client().slot(class_, **options)


def async_slot(class_: str, **options: Any) -> AsyncSlot:
    """The same for `async with`."""
    return default_client().async_slot(class_, **options)


# Executions


@dataclasses.dataclass(frozen=True)
class Execution:
    """A program that the server runs. `state` is `queued`, `starting`, `running`, `stopping`,
    `stuck` or `ended`. `outcome` is `completed`, `failed`, `lost`, `cancelled`, `timed-out` or
    `wait-over`. `answer` has all fields, with the steps of the saga."""

    id: str
    state: str
    outcome: Optional[str]
    exit_code: Optional[int]
    signal: Optional[int]
    reason: Optional[str]
    started_at: Optional[datetime.datetime]
    ended_at: Optional[datetime.datetime]
    answer: Json = dataclasses.field(repr=False)

    @classmethod
    def of(cls, answer: Mapping[str, Any]) -> Execution:
        """Reads an answer of the server."""
        return cls(
            id=answer["id"],
            state=answer["state"],
            outcome=answer.get("outcome"),
            exit_code=answer.get("exitCode"),
            signal=answer.get("signal"),
            reason=answer.get("reason"),
            started_at=_moment(answer.get("startedAt")),
            ended_at=_moment(answer.get("endedAt")),
            answer=dict(answer),
        )


def submit(command: str, args: Sequence[str], class_: str, **options: Any) -> Execution:
    """Submits a program to the server; see `Client.submit`."""
    return default_client().submit(command, args, class_, **options)


def execution(id: str, *, wait: Optional[float] = 0) -> Execution:
    """Returns the state of an execution; see `Client.execution`."""
    return default_client().execution(id, wait=wait)


def cancel(id: str) -> Execution:
    """Stops an execution; see `Client.cancel`."""
    return default_client().cancel(id)


# Repository of allocations


@dataclasses.dataclass(frozen=True)
class Allocation:
    """A booking as an allocation, with Kubernetes quantities."""

    allocation_id: str
    execution_id: str
    language: str
    status: str
    cpu_request: Optional[str]
    memory_request: Optional[str]
    cpu_limit: Optional[str]
    memory_limit: Optional[str]
    allocated_at: Optional[datetime.datetime]
    released_at: Optional[datetime.datetime]

    @classmethod
    def of(cls, booking: Mapping[str, Any]) -> Allocation:
        """Converts a booking: `active` while granted, `released` after any end."""
        return cls(
            allocation_id=booking["id"],
            execution_id=booking.get("executionId", booking["id"]),
            language=booking.get("class", ""),
            status="active" if booking["state"] == "granted" else "released",
            cpu_request=_cpu_text(booking.get("cpuMilli")),
            memory_request=_memory_text(booking.get("memoryBytes")),
            cpu_limit=_cpu_text(booking.get("cpuLimitMilli")),
            memory_limit=_memory_text(booking.get("memoryLimitBytes")),
            allocated_at=_moment(booking.get("grantedAt")),
            released_at=_moment(booking.get("endedAt")),
        )


class SyncResourceAllocationRepository:
    """Repository of allocations, for code without an event loop.

    An allocation is renewed while this process lives, and its slots become free afterwards. With
    `renew=False` it is held for 24 hours, for processes that end before their work does.
    """

    def __init__(
        self, client: Optional[Client] = None, *, tenant: Optional[str] = None, renew: bool = True
    ) -> None:
        self.client = client or default_client()
        self._tenant = tenant
        self._renew = renew
        self._held: Dict[str, Slot] = {}

    def count_active(self, language: str) -> int:
        """Number of active allocations of a language."""
        return len(self.client.bookings(language=language, status="active"))

    def create_allocation(
        self,
        *,
        allocation_id: str,
        execution_id: str,
        language: str,
        cpu_request: Quantity,
        memory_request: Quantity,
        cpu_limit: Quantity,
        memory_limit: Quantity,
    ) -> Allocation:
        """Creates an allocation, or raises `Refused` if the limit is reached."""
        requests, limits = (cpu_request, memory_request), (cpu_limit, memory_limit)
        return self._create(self._slot(allocation_id, execution_id, language, requests, limits))

    def release_allocation(self, allocation_id: str) -> Optional[Allocation]:
        """Releases an allocation. An ended one stays unchanged; None means that it is unknown.

        Raises `Fenced` for an allocation that this repository renewed and lost. The release is
        repeated like `Slot.release`. Without renewal by this repository the deadline is unknown:
        the release is repeated for 10 seconds, not in the background.
        """
        held = self._held.pop(allocation_id, None)
        if held is not None and held._pid == os.getpid():
            held._give_back({})
        else:
            self._release_by_id(allocation_id)
        booking = self._booking(allocation_id)
        return None if booking is None else Allocation.of(booking)

    def _release_by_id(self, allocation_id: str) -> None:
        end = _now() + RELEASE_SECONDS
        booking = _repeated(lambda: self._booking(allocation_id), end)
        if booking is None or booking["state"] != "granted":
            return
        path, body = f"/v1/bookings/{_escaped(allocation_id)}/release", {"fence": booking["fence"]}
        with contextlib.suppress(Fenced):  # It has ended since it was read.
            _repeated(lambda: self.client.call("POST", path, body), end)

    def get_allocation(self, allocation_id: str) -> Optional[Allocation]:
        """One allocation, or None if the server does not know it."""
        booking = self._booking(allocation_id)
        return None if booking is None else Allocation.of(booking)

    def find_allocations(
        self,
        *,
        execution_id: Optional[str] = None,
        language: Optional[str] = None,
        status: Optional[str] = None,
    ) -> List[Allocation]:
        """Allocations by these filters. The server remembers ended ones for 24 hours."""
        state = None if status else "granted,ended"
        found = self.client.bookings(
            language=language, status=status, state=state, execution=execution_id
        )
        # A request that ended while it waited was never an allocation.
        return [Allocation.of(booking) for booking in found if booking.get("grantedAt")]

    def _slot(
        self,
        allocation_id: str,
        execution_id: str,
        language: str,
        requests: Tuple[Quantity, Quantity],
        limits: Tuple[Quantity, Quantity],
    ) -> Slot:
        slot = self.client.slot(
            language,
            tenant=self._tenant,
            wait=0,
            ttl=TTL_SECONDS if self._renew else DAY_SECONDS,
            id=allocation_id,
            execution_id=None if execution_id == allocation_id else execution_id,
            cpu=requests[0],
            memory=requests[1],
            cpu_limit=limits[0],
            memory_limit=limits[1],
        )
        slot._is_renewed = self._renew
        return slot

    def _create(self, slot: Slot) -> Allocation:
        slot.acquire()
        if self._renew:
            self._held[slot.id] = slot
        return Allocation.of(self.client.call("GET", slot._path)[1])

    def _booking(self, allocation_id: str) -> Optional[Json]:
        try:
            return self.client.call("GET", f"/v1/bookings/{_escaped(allocation_id)}")[1]
        except BursarError as error:
            if error.code == "not-found":
                return None
            raise


class ResourceAllocationRepository:
    """Repository of allocations with `async` methods; `sync` is the same without `await`."""

    def __init__(
        self, client: Optional[Client] = None, *, tenant: Optional[str] = None, renew: bool = True
    ) -> None:
        self.sync = SyncResourceAllocationRepository(client, tenant=tenant, renew=renew)

    async def count_active(self, language: str) -> int:
        """Number of active allocations of a language."""
        return await _in_thread(lambda: self.sync.count_active(language))

    async def create_allocation(
        self,
        *,
        allocation_id: str,
        execution_id: str,
        language: str,
        cpu_request: Quantity,
        memory_request: Quantity,
        cpu_limit: Quantity,
        memory_limit: Quantity,
    ) -> Allocation:
        """Creates an allocation, or raises `Refused`. A cancelled call releases it."""
        requests, limits = (cpu_request, memory_request), (cpu_limit, memory_limit)
        slot = self.sync._slot(allocation_id, execution_id, language, requests, limits)
        return await _in_thread(lambda: self.sync._create(slot), slot._give_up)

    async def release_allocation(self, allocation_id: str) -> Optional[Allocation]:
        """Releases an allocation. An ended one stays unchanged; None means that it is unknown."""
        return await _in_thread(lambda: self.sync.release_allocation(allocation_id))

    async def get_allocation(self, allocation_id: str) -> Optional[Allocation]:
        """One allocation, or None if the server does not know it."""
        return await _in_thread(lambda: self.sync.get_allocation(allocation_id))

    async def find_allocations(self, **filters: Optional[str]) -> List[Allocation]:
        """Allocations by `execution_id`, `language` and `status`."""
        return await _in_thread(lambda: self.sync.find_allocations(**filters))


# The client


class Client:
    """Client of a server. Threads may share it; a forked child starts without its connections.

    The server is the first that is set: `server` or `context` here, `BURSAR_SERVER`,
    `BURSAR_CONTEXT`, `current` in the config file, the socket of a local `bursar up`.
    """

    def __init__(
        self,
        server: Optional[str] = None,
        *,
        context: Optional[str] = None,
        token_file: Optional[str] = None,
        timeout: float = TIMEOUT_SECONDS,
    ) -> None:
        found = _discover(server, context, token_file, os.environ)
        self.server: str = found.address
        self.timeout = timeout
        self._because = found.because
        self._connect = _connector(found.address)
        self._headers = {} if found.token is None else {"Authorization": f"Bearer {found.token}"}
        self._idle: List[http.client.HTTPConnection] = []
        self._keeper = _Keeper()
        _clients.add(self)
        weakref.finalize(self, _close_all, self._idle)

    def slot(
        self,
        class_: str,
        *,
        tenant: Optional[str] = None,
        wait: Optional[float] = None,
        slots: int = 1,
        cpu: Optional[Quantity] = None,
        memory: Optional[Quantity] = None,
        gpus: Optional[int] = None,
        ttl: float = TTL_SECONDS,
        priority: Optional[str] = None,
        id: Optional[str] = None,
        execution_id: Optional[str] = None,
        cpu_limit: Optional[Quantity] = None,
        memory_limit: Optional[Quantity] = None,
    ) -> Slot:
        """Makes a slot for `with`. `wait` is in seconds: 0 refuses at once, None waits as long as
        the limits allow. `cpu` and `memory` are Kubernetes quantities: `500m`, `256Mi`."""
        request = {
            "class": class_,
            "tenant": tenant,
            "slots": slots,
            "cpuMilli": _cpu_milli(cpu),
            "memoryBytes": _memory_bytes(memory),
            "gpus": gpus,
            "ttlMs": _milliseconds(ttl),
            "waitMs": _milliseconds(DAY_SECONDS if wait is None else wait),
            "priority": priority,
            "executionId": execution_id,
            "cpuLimitMilli": _cpu_milli(cpu_limit),
            "memoryLimitBytes": _memory_bytes(memory_limit),
        }
        return Slot(self, _given(request), wait, id or _new_id("slot"))

    def async_slot(self, class_: str, **options: Any) -> AsyncSlot:
        """The same for `async with`."""
        return AsyncSlot(self.slot(class_, **options))

    def submit(
        self,
        command: str,
        args: Sequence[str],
        class_: str,
        *,
        env: Optional[Mapping[str, str]] = None,
        directory: Optional[str] = None,
        tenant: Optional[str] = None,
        wait: Optional[float] = None,
        slots: int = 1,
        cpu: Optional[Quantity] = None,
        memory: Optional[Quantity] = None,
        gpus: Optional[int] = None,
        cpu_limit: Optional[Quantity] = None,
        memory_limit: Optional[Quantity] = None,
        pids: Optional[int] = None,
        priority: Optional[str] = None,
        start_timeout: Optional[float] = None,
        max_time: Optional[float] = None,
        grace: Optional[float] = None,
        retry_of: Optional[str] = None,
        allow_privilege_escalation: bool = False,
        id: Optional[str] = None,
    ) -> Execution:
        """Submits a program, which the server runs at most once, in its own slots. Does not wait.

        `env` is the whole environment of the program. `wait` is the maximum time in the queue, as
        for `slot`; `max_time`, `start_timeout` and `grace` are in seconds too. Programs such as
        sudo give it no further privileges unless `allow_privilege_escalation` is true.
        """
        request = {
            "command": command,
            "args": list(args),
            "class": class_,
            "env": None if env is None else dict(env),
            "directory": directory,
            "tenant": tenant,
            "slots": slots,
            "cpuMilli": _cpu_milli(cpu),
            "memoryBytes": _memory_bytes(memory),
            "gpus": gpus,
            "cpuLimitMilli": _cpu_milli(cpu_limit),
            "memoryLimitBytes": _memory_bytes(memory_limit),
            "pids": pids,
            "priority": priority,
            "waitMs": _milliseconds(DAY_SECONDS if wait is None else wait),
            "startTimeoutMs": _milliseconds(start_timeout),
            "maxTimeMs": _milliseconds(max_time),
            "graceMs": _milliseconds(grace),
            "retryOf": retry_of,
            "allowPrivilegeEscalation": allow_privilege_escalation or None,
        }
        path = f"/v1/executions/{_escaped(id or _new_id('run'))}"
        return Execution.of(self._put(path, _given(request), wait is None)[1])

    def execution(self, id: str, *, wait: Optional[float] = 0) -> Execution:
        """Returns an execution when it has ended, or after `wait` seconds; None waits without a
        limit."""
        deadline = math.inf if wait is None else _now() + wait
        path = f"/v1/executions/{_escaped(id)}"
        while True:
            look = min(LOOK_SECONDS, max(0.0, deadline - _now()))
            query = {"wait": f"{_milliseconds(look)}ms"} if look else None
            found = Execution.of(self.call("GET", path, query=query, wait=look)[1])
            if found.state == "ended" or _now() >= deadline:
                return found

    def cancel(self, id: str) -> Execution:
        """Stops an execution in any state; its slots are free once its processes are gone."""
        return Execution.of(self.call("POST", f"/v1/executions/{_escaped(id)}/cancel", {})[1])

    def bookings(self, **filters: Optional[str]) -> List[Json]:
        """All bookings of a filter: `language`, `status`, `tenant`, `state`, `execution`, `id`."""
        query: Dict[str, Any] = {**filters, "limit": PAGE_MAX}
        items: List[Json] = []
        while True:
            page = self.call("GET", "/v1/bookings", query=query)[1]
            items.extend(page.get("items", []))
            if not page.get("nextCursor"):
                return items
            query["cursor"] = page["nextCursor"]

    def call(
        self,
        method: str,
        path: str,
        body: Optional[Json] = None,
        *,
        query: Optional[Mapping[str, Any]] = None,
        wait: float = 0.0,
        timeout: Optional[float] = None,
        attempts: int = ATTEMPTS_MAX,
        stop: Optional[threading.Event] = None,
    ) -> Tuple[int, Json]:
        """Makes a call, with repeats, and returns status and answer; problems are raised.

        `wait` is the time that the server may wait before it answers. Once `stop` is set the call
        is not repeated.
        """
        given = urllib.parse.urlencode(_given(query or {}))
        target = f"{path}?{given}" if given else path
        deadline = _now() + (self.timeout if timeout is None else timeout) + wait
        stop = stop or threading.Event()
        pause, is_unknown = _Pause(), False
        for attempt in range(1, attempts + 1):
            try:
                return self._attempt(method, target, body, deadline)
            except BursarError as error:
                is_unknown = (is_unknown or error.code in _UNKNOWN) and method != "GET"
                length = max(pause.next(), error.retry_after or 0.0)
                # An absent server at the first attempt is an error at once. After a first answer
                # the server may be restarting.
                is_absent = attempt == 1 and error.code == "unreachable"
                is_over = attempt == attempts or _now() + length >= deadline or stop.is_set()
                if is_over or is_absent or error.code not in _WORTH_REPEATING:
                    raise self._verdict(error, is_unknown) from error.__cause__
            stop.wait(length)
        raise AssertionError("a call has at least one attempt")

    def _put(
        self, path: str, request: Json, is_endless: bool, stop: Optional[threading.Event] = None
    ) -> Tuple[int, Json]:
        """Sends a request. An endless wait is shortened to the maximum that the limits allow."""
        while True:
            try:
                return self.call("PUT", path, request, stop=stop)
            except BursarError as error:
                paths = [item.get("path") for item in error.problem.get("errors", [])]
                is_too_long = is_endless and paths == ["waitMs"]
                if not is_too_long or request["waitMs"] <= 1_000:
                    raise
                most = _longest_wait_ms(error.problem)
                half = request["waitMs"] // 2
                request["waitMs"] = half if most is None or most >= request["waitMs"] else most

    def _verdict(self, error: BursarError, is_unknown: bool) -> BursarError:
        """Error of the last attempt; `OutcomeUnknown` if an earlier attempt may have been done."""
        is_answer = not isinstance(error, Unavailable) and error.code not in _UNKNOWN
        if is_answer or not is_unknown:
            return error
        detail = f"{error.detail}; the call may have been done, and repeating it is safe"
        code = error.code if error.code in _UNKNOWN else "outcome-unknown"
        return OutcomeUnknown({**error.problem, "code": code, "detail": detail})

    def _attempt(
        self, method: str, target: str, body: Optional[Json], deadline: float
    ) -> Tuple[int, Json]:
        sent = _Sent(method, target, body, self._headers)
        try:
            # The server may have closed a kept connection, which shows only in use. That is no
            # error of the server, so a new connection is tried.
            with contextlib.suppress(ConnectionError, http.client.HTTPException, IndexError):
                return self._exchange(self._idle.pop(), sent, deadline)
            return self._exchange(self._connected(deadline), sent, deadline)
        except socket.timeout as error:
            raise self._broken("timeout", "does not answer in time") from error
        except (OSError, http.client.HTTPException) as error:
            raise self._broken("lost", f"stopped answering ({error!r})") from error

    def _connected(self, deadline: float) -> http.client.HTTPConnection:
        connection = self._connect(_left(deadline))
        try:
            connection.connect()
        except OSError as error:
            connection.close()
            detail = f"cannot reach {self.server} ({self._because}): {error}"
            raise Unavailable({"code": "unreachable", "detail": detail}) from error
        return connection

    def _exchange(
        self, connection: http.client.HTTPConnection, sent: _Sent, deadline: float
    ) -> Tuple[int, Json]:
        try:
            connection.sock.settimeout(_left(deadline))
            connection.request(sent.method, sent.target, sent.body, sent.headers)
            response = connection.getresponse()
            raw = _body(response)
        except BaseException:
            # The rest of the answer would be read as the next answer.
            connection.close()
            raise
        if response.isclosed() and not response.will_close and len(self._idle) < IDLE_MAX:
            self._idle.append(connection)
        else:
            connection.close()
        return response.status, self._read(response, raw)

    def _read(self, response: http.client.HTTPResponse, raw: bytes) -> Json:
        try:
            answer = json.loads(raw)
        except ValueError:
            answer = None
        if not isinstance(answer, dict) or len(raw) > ANSWER_BYTES_MAX:
            start = raw[:60].decode("utf-8", "replace")
            raise self._protocol(f"status {response.status} with {start!r}")
        if response.status < 300:
            return answer
        seconds = response.headers.get("Retry-After", "")
        if seconds.isdigit():
            answer.setdefault("retryAfterMs", int(seconds) * 1_000)
        raise _error_of({"status": response.status, **answer})

    def _broken(self, code: str, what: str) -> BursarError:
        return Unavailable({"code": code, "detail": f"{self.server} {what}"})

    def _protocol(self, what: str) -> BursarError:
        detail = f"the answer of {self.server} is not one of Bursar: {what}"
        return BursarError({"code": "protocol", "detail": detail})

    def _after_fork(self) -> None:
        # Connections and slots belong to the parent; closing the copies does not affect it.
        _close_all(self._idle)
        self._keeper = _Keeper()


def _body(response: http.client.HTTPResponse) -> bytes:
    """Reads an answer up to the maximum size. In pieces, because a read of the maximum size would
    allocate that much memory first."""
    body = bytearray()
    while len(body) <= ANSWER_BYTES_MAX:
        piece = response.read(PIECE_BYTES)
        if not piece:
            if response.length:  # The answer breaks off; `read` with a size does not raise.
                raise http.client.IncompleteRead(bytes(body), response.length)
            break
        body += piece
    return bytes(body)


def _close_all(connections: List[http.client.HTTPConnection]) -> None:
    while connections:
        connections.pop().close()


_default: Optional[Client] = None
_default_guard = threading.Lock()
_clients: weakref.WeakSet[Client] = weakref.WeakSet()


def default_client() -> Client:
    """Client for the settings of the environment, made once."""
    global _default
    with _default_guard:
        if _default is None:
            _default = Client()
        return _default


def _fork_in_child() -> None:
    global _default_guard
    _default_guard = threading.Lock()
    for client in list(_clients):
        client._after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_fork_in_child)


@dataclasses.dataclass
class _Sent:
    """A request in the form of `http.client`."""

    method: str
    target: str
    body: Any
    headers: Dict[str, str]

    def __post_init__(self) -> None:
        if self.body is not None:
            self.body = json.dumps(self.body).encode()
            self.headers = {**self.headers, "Content-Type": "application/json"}


class _GivenUp(Exception):
    """The wait for a slot was given up. Raised only in the waiting thread."""


class _Release:
    """A release, which is sent until the server answers or the deadline of the booking passes."""

    def __init__(self, slot: Slot, body: Json, deadline: float) -> None:
        self.id = slot.id
        self.slot = slot
        self.body = body
        self.began = _now()
        self.end = deadline
        #: Set once it was answered, or its deadline has passed.
        self.over = threading.Event()
        #: True while its caller waits, and so will report its result.
        self.is_awaited = True
        self.answer: Json = {}
        self.error: Optional[BursarError] = None
        self._client = slot._client
        # Time of the next attempt by the thread; the caller makes the first attempt.
        self._due = math.inf
        self._pause = _Pause()

    def failure(self) -> BursarError:
        """Error of a release that was not accepted."""
        error = self.error or Unavailable({"code": "timeout", "detail": "no answer in time"})
        if error.code in _ENDED:
            return error
        ends = f"its ttl ends it at {_clock(self.end)}, or one ttl after the server restarts"
        if not self.over.is_set():
            ends = f"{ends}; until then this is repeated"
        detail = f"slot {self.id} was not given back: {error.detail}; {ends}"
        return type(error)({**error.problem, "detail": detail})

    def _operation(self) -> Json:
        return {"op": "release", "id": self.id, **self.body}

    def _done(self, answer: Json, _: float) -> None:
        """Handles an accepted release."""
        self.answer, self.error = answer, None
        self.over.set()
        if not self.is_awaited:
            _log.info("slot %s was given back after %.1f s", self.id, _now() - self.began)

    def _fail(self, error: BursarError) -> None:
        """Handles a failed attempt; a refusal ends the repeats."""
        self.error = error
        self._due = _now() + max(self._pause.next(), error.retry_after or 0.0)
        if not _is_temporary(error) or self._due >= self.end:
            self.over.set()
            if not self.is_awaited:
                _log.warning("%s", self.failure())


#: Items that the thread of a client sends.
_Kept = Union[Slot, _Release]


class _Keeper:
    """Renews the slots of a client and repeats its releases, in one thread, which ends when there
    are none.

    All due items go in one batch. No attempt lasts beyond the nearest deadline, so a hanging server
    cannot delay the notice of a lost slot.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._slots: Dict[str, Slot] = {}
        self._releases: List[_Release] = []
        self._thread: Optional[threading.Thread] = None

    def keep(self, slot: Slot) -> None:
        """Starts renewing a slot."""
        with self._changed:
            self._slots[slot.id] = slot
            self._start()

    def forget(self, slot: Slot) -> None:
        """Stops renewing a slot."""
        with self._changed:
            if self._slots.get(slot.id) is slot:
                del self._slots[slot.id]
                self._changed.notify_all()

    def give_back(self, release: _Release) -> Json:
        """Sends a release and waits some seconds for its answer. Without an answer it raises the
        error, and the thread repeats the release until its end."""
        self.forget(release.slot)
        with self._changed:
            self._releases.append(release)
        try:
            self._attempt(release)
            release.over.wait(_left(min(release.end, release.began + RELEASE_SECONDS)))
        finally:
            with self._changed:
                release.is_awaited = False
                is_over, failure = release.over.is_set(), release.failure()
                if is_over and release in self._releases:
                    self._releases.remove(release)
                    self._changed.notify_all()
        if is_over and release.error is None:
            return release.answer
        raise failure

    def drain(self) -> None:
        """Waits for releases at the end of the process, each until some seconds after it began, and
        logs those that were not accepted."""
        with self._changed:
            while self._releases:
                left = max(release.began for release in self._releases) + RELEASE_SECONDS - _now()
                if left <= 0:
                    break
                self._changed.wait(left)
            for release in self._releases:
                release.over.set()
                _log.warning("%s", release.failure())

    def _attempt(self, release: _Release) -> None:
        """First attempt, by the caller. The thread repeats it, also after an interrupt."""
        path, call = f"{release.slot._path}/release", release._client.call
        timeout = min(RENEWAL_SECONDS, max(RELEASE_SECONDS_FIRST, _left(release.end)))
        try:
            answer = call("POST", path, release.body, timeout=timeout, attempts=1)[1]
            release._done(answer, release.began)
        except BursarError as error:
            release._fail(error)
        finally:
            if not release.over.is_set():
                self._repeat(release)

    def _repeat(self, release: _Release) -> None:
        with self._changed:
            if release._due == math.inf:
                release._due = _now()
            with contextlib.suppress(RuntimeError):
                self._start()
                return
        # An interpreter that shuts down starts no thread, so the caller repeats the release.
        while not release.over.is_set() and release._due < release.began + RELEASE_SECONDS:
            release.over.wait(_left(release._due))
            self._send([release])

    def _start(self) -> None:
        if self._thread is None:
            thread = threading.Thread(target=self._run, name="bursar-renewal", daemon=True)
            thread.start()
            self._thread = thread
        self._changed.notify_all()

    def _tidy(self) -> None:
        """Removes lost slots and releases that are over."""
        for slot in [slot for slot in self._slots.values() if slot._is_lost()]:
            del self._slots[slot.id]
        self._releases = [release for release in self._releases if not release.over.is_set()]
        self._changed.notify_all()

    def _run(self) -> None:
        while True:
            due = self._wait()
            if not due:
                return
            self._send(due)

    def _wait(self) -> List[_Kept]:
        """Waits for due items; returns an empty list once there are no items."""
        with self._changed:
            while True:
                self._tidy()
                kept: List[_Kept] = [*self._slots.values()]
                kept.extend(release for release in self._releases if release._due < math.inf)
                if not kept:
                    self._thread = None
                    return []
                now = _now()
                due = [item for item in kept if item._due <= now]
                if due:
                    return due[:BATCH_MAX]
                moments = [item._due for item in kept]
                moments.extend(slot._deadline for slot in self._slots.values())
                self._changed.wait(max(0.0, min(moments) - now))

    def _send(self, due: List[_Kept]) -> None:
        sent = _now()
        with self._changed:
            ends = [slot._deadline for slot in self._slots.values()]
        ends.extend(item.end for item in due if isinstance(item, _Release))
        timeout = min([RENEWAL_SECONDS, *(end - sent for end in ends)])
        results: List[Union[Json, BursarError]] = []
        failure = BursarError({"code": "protocol", "detail": "the answer has too few results"})
        try:
            body = {"operations": [item._operation() for item in due]}
            call = due[0]._client.call
            answer = call("POST", "/v1/bookings", body, timeout=timeout, attempts=1)[1]
            results.extend(answer["results"])
        except BursarError as error:
            failure = error
        except Exception as error:  # The thread must survive: other slots need their renewal.
            failure = BursarError({"code": "unknown", "detail": repr(error)})
        if len(results) < len(due):
            _log.info("renewals and releases of %d slots are repeated: %s", len(due), failure)
        results.extend([failure] * (len(due) - len(results)))
        with self._changed:
            for item, result in zip(due, results):
                if isinstance(item, Slot) and self._slots.get(item.id) is not item:
                    continue
                if isinstance(result, BursarError):
                    item._fail(result)
                elif result.get("status") == 200:
                    item._done(result, sent)
                else:
                    item._fail(_error_of(result))
            self._tidy()


def _drain() -> None:
    for client in list(_clients):
        client._keeper.drain()
        _close_all(client._idle)


atexit.register(_drain)


class _Pause:
    """Pauses between repeats: growing, and random so that callers do not repeat together."""

    def __init__(self) -> None:
        self._next = PAUSE_SECONDS_FIRST

    def next(self) -> float:
        """Next pause: 50 to 100 % of a length that doubles each time."""
        full = self._next
        self._next = min(full * 2, PAUSE_SECONDS_LAST)
        return random.uniform(full / 2, full)


def _repeated(work: Callable[[], Result], end: float) -> Result:
    """Repeats work after temporary errors until `end`."""
    pause = _Pause()
    while True:
        try:
            return work()
        except BursarError as error:
            length = max(pause.next(), error.retry_after or 0.0)
            if not _is_temporary(error) or _now() + length >= end:
                raise
        time.sleep(length)


async def _in_thread(
    work: Callable[[], Result], give_up: Optional[Callable[[], None]] = None
) -> Result:
    """Runs blocking work beside the event loop.

    Each work has its own thread, because waits for slots would fill the pool of the loop and block
    the releases that they wait for. A cancelled call lets the work finish; `give_up` ends it soon.
    """
    future = _started(work)
    try:
        return await asyncio.shield(future)
    except asyncio.CancelledError:
        ending = [future] if give_up is None else [future, _started(give_up)]
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.wait(ending, timeout=LEAVE_SECONDS)
        for ended in ending:
            # Reading the exception prevents a warning of the loop about an unread one.
            ended.add_done_callback(lambda done: done.cancelled() or done.exception())
        raise


def _started(work: Callable[[], Result]) -> asyncio.Future[Result]:
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Result] = loop.create_future()

    def run() -> None:
        settle: Callable[[], None]
        try:
            settle = functools.partial(future.set_result, work())
        except BaseException as error:
            settle = functools.partial(future.set_exception, error)
        with contextlib.suppress(RuntimeError):  # The loop may have been closed meanwhile.
            loop.call_soon_threadsafe(settle)

    threading.Thread(target=run, name="bursar-call", daemon=True).start()
    return future


# Discovery of the server and the token, in the same order as the command line


@dataclasses.dataclass(frozen=True)
class _Settings:
    """Address and token of a server, with the source of the address."""

    address: str
    because: str
    token: Optional[str]


def _discover(
    server: Optional[str],
    context: Optional[str],
    token_file: Optional[str],
    environment: Mapping[str, str],
) -> _Settings:
    token_path = token_file or environment.get("BURSAR_TOKEN_FILE")
    token = _read_token(token_path) if token_path else None
    if server:
        return _Settings(server, "server=", token)
    if environment.get("BURSAR_SERVER") and not context:
        return _Settings(environment["BURSAR_SERVER"], "BURSAR_SERVER", token)
    config = _read_config(environment)
    name = context or environment.get("BURSAR_CONTEXT") or config.get("current")
    if name:
        return _of_context(name, config, token, environment)
    path = _socket_path(environment)
    if path and os.path.exists(path):
        return _Settings(f"unix:{path}", "the socket of a local server", token)
    tried = f"server=, BURSAR_SERVER, context (none set), socket {path or '(no place for one)'}"
    detail = f"no server found; tried {tried}; start one here with `bursar up`"
    raise Unavailable({"code": "unreachable", "detail": detail})


def _of_context(
    name: str, config: Json, token: Optional[str], environment: Mapping[str, str]
) -> _Settings:
    known = config.get("context", {})
    found = known.get(name, {})
    data = _below("XDG_DATA_HOME", ".local/share", environment)
    if name == "demo" and name not in known and data:
        found = {"server": f"unix:{os.path.join(data, 'demo', 'api.sock')}"}
    if not found.get("server"):
        names = ", ".join(sorted({*known, "demo"}))
        what = "names no server" if name in known else "is not known"
        raise ValueError(f"context `{name}` {what}; contexts are {names}")
    if token is None and found.get("token-file"):
        token = _read_token(_expanded(found["token-file"], environment))
    return _Settings(found["server"], f"context {name}", token)


def _connector(address: str) -> Callable[[float], http.client.HTTPConnection]:
    """Returns a function that makes connections to `unix:/path` or `http://host:port`."""
    if address.startswith("unix:"):
        path = address[len("unix:") :]
        path = _expanded(path[2:] if path.startswith("//") else path, os.environ)
        return lambda timeout: _UnixConnection(path, timeout)
    parts = urllib.parse.urlsplit(address)
    if parts.scheme == "https":
        raise ValueError(f"`{address}` uses TLS, which is not supported; use http or the socket")
    is_plain = parts.path in ("", "/") and not parts.query and "@" not in parts.netloc
    if parts.scheme != "http" or not parts.hostname or not is_plain:
        hint = "write it as in http://127.0.0.1:7171 or unix:/run/bursar/api.sock"
        raise ValueError(f"`{address}` is not a server; {hint}")
    host, port = parts.hostname, parts.port or PORT_DEFAULT
    return lambda timeout: http.client.HTTPConnection(host, port, timeout=timeout)


class _UnixConnection(http.client.HTTPConnection):
    """HTTP over the socket of a local server, where the Unix user is the identity."""

    def __init__(self, path: str, timeout: float) -> None:
        super().__init__("localhost", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        """Connects to the path instead of a host."""
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


def _read_token(path: str) -> str:
    """Reads a token from a file that only its owner can read."""
    mode = os.stat(path).st_mode & 0o777
    if mode & 0o077:
        what = f"token file {path} can be read by others (mode {mode:o})"
        raise PermissionError(f"{what}; `chmod 600 {path}` and make a new token")
    with open(path, encoding="utf-8") as file:
        token = file.read(TOKEN_BYTES_MAX + 1).strip()
    if not re.fullmatch(r"[!-~]{1,%d}" % TOKEN_BYTES_MAX, token):
        raise ValueError(f"token file {path} does not hold one token of visible characters")
    return token


def _read_config(environment: Mapping[str, str]) -> Json:
    """Reads the config file of the client, if there is one."""
    directory = _below("XDG_CONFIG_HOME", ".config", environment)
    path = environment.get("BURSAR_CONFIG") or (
        os.path.join(directory, "config.toml") if directory else ""
    )
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read()
    except FileNotFoundError:
        return {}
    try:
        import tomllib
    except ImportError:  # Before Python 3.11.
        return _read_plain_toml(text, path)
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"{path}: {error}") from error


_TABLE = re.compile(r"\[\s*(\w+)\s*(?:\.\s*(?:([\w-]+)|\"([^\"\\]*)\"|'([^']*)')\s*)?\]")
_PAIR = re.compile(r"([\w-]+)\s*=\s*(?:\"([^\"\\]*)\"|'([^']*)')")


def _read_plain_toml(text: str, path: str) -> Json:
    """Reads tables and texts without escapes. All else is refused, so that nothing is read
    differently than by a full TOML reader."""
    root: Json = {}
    table = root
    for number, line in enumerate(text.splitlines(), 1):
        line = re.sub(r"""^((?:[^"'#]|"[^"]*"|'[^']*')*)#.*$""", r"\1", line).strip()
        header, pair = _TABLE.fullmatch(line), _PAIR.fullmatch(line)
        if header:
            table = root.setdefault(header[1], {})
            name = next((name for name in header.groups()[1:] if name is not None), None)
            table = table if name is None else table.setdefault(name, {})
        elif pair:
            table[pair[1]] = pair[2] if pair[2] is not None else pair[3]
        elif line:
            what = 'before Python 3.11 only lines like key = "text" are read'
            raise ValueError(f"{path}:{number}: {what}")
    return root


def _socket_path(environment: Mapping[str, str]) -> Optional[str]:
    """Path of the socket of a local server."""
    directory = _below("XDG_DATA_HOME", ".local/share", environment)
    if environment.get("XDG_RUNTIME_DIR"):
        directory = os.path.join(environment["XDG_RUNTIME_DIR"], "bursar")
    elif os.geteuid() == 0:
        directory = "/run/bursar"
    return os.path.join(directory, "api.sock") if directory else None


def _below(variable: str, rest: str, environment: Mapping[str, str]) -> Optional[str]:
    """Directory `bursar` below a directory of the user, whose variable must be an absolute path."""
    directory = environment.get(variable, "")
    if not os.path.isabs(directory):
        home = environment.get("HOME")
        directory = os.path.join(home, rest) if home else ""
    return os.path.join(directory, "bursar") if directory else None


def _expanded(path: str, environment: Mapping[str, str]) -> str:
    """Expands `~/` at the beginning of a path."""
    home = environment.get("HOME")
    return os.path.join(home, path[2:]) if home and path.startswith("~/") else path


# Quantities, ids and times

_NUMBER = re.compile(r"([+-]?)(\d+\.?\d*|\.\d+)([numkMGTPE]|[KMGTPE]i|[eE][+-]?\d+)?", re.ASCII)
_DECIMAL = {"n": -9, "u": -6, "m": -3, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}


def _cpu_milli(text: Optional[Quantity]) -> Optional[int]:
    return None if text is None else _amount(str(text), 1_000)


def _memory_bytes(text: Optional[Quantity]) -> Optional[int]:
    return None if text is None else _amount(str(text), 1)


def _amount(text: str, scale: int) -> int:
    """Reads a Kubernetes quantity in whole units, rounded up like Kubernetes does. Floats would
    round differently."""
    match = _NUMBER.fullmatch(text) if len(text) <= 64 else None
    if match is None:
        raise ValueError(f"`{text[:40]}` is not a quantity; write it as in 500m, 1.5, 256Mi or 4Gi")
    sign, number, suffix = match[1], match[2], match[3] or ""
    value = fractions.Fraction(number) * scale
    if value and sign == "-":
        raise ValueError(f"`{text}` is negative")
    if suffix in _BINARY:
        value *= 1 << _BINARY[suffix]
    elif suffix:
        power = _DECIMAL[suffix] if suffix in _DECIMAL else int(suffix[1:])
        # Beyond a hundred the result is the same, because the number has at most 64 digits.
        value *= fractions.Fraction(10) ** max(-100, min(100, power))
    whole = -(-value.numerator // value.denominator)
    if whole > INTEGER_MAX:
        raise ValueError(f"`{text}` is too large")
    return whole


def _cpu_text(milli: Optional[int]) -> Optional[str]:
    if milli is None:
        return None
    return f"{milli}m" if milli % 1_000 else str(milli // 1_000)


def _memory_text(size: Optional[int]) -> Optional[str]:
    """Text of a size with the largest exact binary suffix."""
    if size is None:
        return None
    for suffix, shift in sorted(_BINARY.items(), key=lambda item: -item[1]):
        if size and size % (1 << shift) == 0:
            return f"{size >> shift}{suffix}"
    return str(size)


def _new_id(prefix: str) -> str:
    """Makes an id that is never granted twice: its UUIDv7 contains its age."""
    value = int(time.time() * 1_000) << 80 | int.from_bytes(os.urandom(10), "big")
    value = value & ~(0xF << 76) | 0x7 << 76
    value = value & ~(0x3 << 62) | 0x2 << 62
    return f"{prefix}-{uuid.UUID(int=value)}"


def _moment(text: Optional[str]) -> Optional[datetime.datetime]:
    return None if text is None else datetime.datetime.fromisoformat(text.replace("Z", "+00:00"))


def _clock(moment: float) -> str:
    """UTC time of day of a time of `_now`."""
    seconds = time.time() + moment - _now()
    then = datetime.datetime.fromtimestamp(seconds, datetime.timezone.utc)
    return then.strftime("%Y-%m-%dT%H:%M:%SZ")


def _milliseconds(seconds: Optional[float]) -> Optional[int]:
    return None if seconds is None else math.ceil(seconds * 1_000)


def _longest_wait_ms(problem: Json) -> Optional[int]:
    """Maximum wait in a refusal, if it has one."""
    bounds = problem.get("bounds") or {}
    return bounds.get("max") if bounds.get("field") == "waitMs" else None


def _given(fields: Mapping[str, Any]) -> Json:
    """Fields with a value; the server has defaults for the others."""
    return {name: value for name, value in fields.items() if value is not None}


def _escaped(part: str) -> str:
    return urllib.parse.quote(part, safe="")


def _left(deadline: float) -> float:
    """Timeout of a socket; zero would mean non-blocking."""
    return max(0.001, deadline - _now())


def _now() -> float:
    """Seconds of a clock that also counts during sleep, like that of the server."""
    if hasattr(time, "CLOCK_BOOTTIME"):
        return time.clock_gettime(time.CLOCK_BOOTTIME)
    return time.monotonic()
