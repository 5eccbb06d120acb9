"""Tests of `bursar.py` against the real server, whose path is in `BURSAR_BIN`.

Each test has its own classes or its own server, so none depends on another. Tests wait for
conditions, with a maximum time.
"""

from __future__ import annotations

import asyncio
import contextlib
import http.server
import json
import logging
import os
import pathlib
import pickle
import re
import signal
import subprocess
import sys
import tempfile
import threading
import unittest
import uuid
from typing import Any, Callable, Dict, Iterator, List, Tuple
from unittest import mock

import bursar

HERE = pathlib.Path(__file__).resolve().parent
#: Maximum time to wait for an expected event.
PATIENCE_SECONDS = 30.0
ALLOCATION = {
    "language": "python",
    "cpu_request": "100m",
    "memory_request": "128Mi",
    "cpu_limit": "500m",
    "memory_limit": "256Mi",
}


class Server:
    """`bursar up` with a home of its own, stopped and removed at the end."""

    def __init__(self) -> None:
        self._home = tempfile.TemporaryDirectory(prefix="bursar-")
        self.home = pathlib.Path(self._home.name)
        self.environment = {
            "HOME": str(self.home),
            "XDG_RUNTIME_DIR": str(self.home / "run"),
            "LANG": "C.UTF-8",
            "TZ": "UTC",
        }
        self.start()

    def start(self) -> None:
        """Starts the server and waits until it is ready."""
        words = ["up", "--data", str(self.home / "data"), "--listen", "127.0.0.1:0", "-o", "json"]
        self._log = open(self.home / "log", "ab")
        self.process = subprocess.Popen(
            [os.environ["BURSAR_BIN"], *words],
            env=self.environment,
            cwd=self.home,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=self._log,
        )
        assert self.process.stdout is not None
        said = self.process.stdout.readline()
        if not said:
            raise RuntimeError(f"no server: {(self.home / 'log').read_text()}")
        ready = json.loads(said)
        self.address: str = ready["server"]
        self.socket: str = f"unix:{ready['socket']}"

    def kill(self) -> None:
        """Kills the server."""
        self._end(signal.SIGKILL)

    def close(self) -> None:
        """Stops the server as Ctrl-C does, so that it removes its cgroups, and removes its home."""
        if self.process.poll() is None:
            self._end(signal.SIGINT)
        self._home.cleanup()

    def _end(self, how: signal.Signals) -> None:
        self.process.send_signal(how)
        try:
            self.process.wait(PATIENCE_SECONDS)
        finally:
            self.process.kill()
            assert self.process.stdout is not None
            self.process.stdout.close()
            self._log.close()

    def command(self, *words: str) -> str:
        """Runs the command line against the server."""
        ended = subprocess.run(
            [os.environ["BURSAR_BIN"], *words],
            env=self.environment,
            cwd=self.home,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=True,
            text=True,
        )
        return ended.stdout

    def client(self, **options: Any) -> bursar.Client:
        """Client over the socket of the server."""
        return bursar.Client(self.socket, **options)


def eventually(condition: Callable[[], Any]) -> Any:
    """Repeats a condition, which calls the server, until its result is true; returns the result."""
    deadline = bursar._now() + PATIENCE_SECONDS
    while bursar._now() < deadline:
        found = condition()
        if found:
            return found
    raise AssertionError("it did not happen")


def limit(client: bursar.Client, class_: str, slots: int, **bounds: Any) -> None:
    """Declares the slots of a class."""
    body = {
        "apiVersion": "bursar.dev/v1alpha1",
        "kind": "Limit",
        "metadata": {"name": class_},
        "spec": {"class": class_, "slots": slots, **bounds},
    }
    client.call("PUT", f"/v1/limits/{class_}", body)


def force(client: bursar.Client, id: str) -> None:
    """Releases a slot by force, as an operator."""
    client.call("POST", f"/v1/bookings/{id}/release", {"force": True, "reason": "test"})


def booking(client: bursar.Client, id: str) -> Dict[str, Any]:
    """State of a booking."""
    return client.call("GET", f"/v1/bookings/{id}")[1]


def held(client: bursar.Client, class_: str) -> int:
    """Number of granted bookings of a class."""
    return len(client.bookings(language=class_, status="active"))


def waiting(client: bursar.Client, class_: str) -> List[Dict[str, Any]]:
    """Waiting bookings of a class."""
    return client.bookings(language=class_, state="queued")


def in_threads(count: int, work: Callable[[int], Any]) -> List[Any]:
    """Runs work on several threads at once, and returns the result or exception of each."""
    gate = threading.Barrier(count)
    results: List[Any] = [None] * count

    def run(number: int) -> None:
        gate.wait(PATIENCE_SECONDS)
        try:
            results[number] = work(number)
        except Exception as error:
            results[number] = error

    threads = [threading.Thread(target=run, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_SECONDS)
        assert not thread.is_alive(), "a thread hangs"
    return results


def after_first_call(client: bursar.Client, act: Callable[[], None]) -> Any:
    """Acts once, after the server has answered the next call and before the client reads it."""
    real, acts = client.call, iter([act])

    def call(*words: Any, **options: Any) -> Any:
        answer = real(*words, **options)
        next(acts, lambda: None)()
        return answer

    return mock.patch.object(client, "call", call)


shared: Server


def setUpModule() -> None:
    global shared
    # The tests lose slots on purpose, so their warnings are not shown.
    logging.getLogger("bursar").addHandler(logging.NullHandler())
    shared = Server()


def tearDownModule() -> None:
    shared.close()


class Slots(unittest.TestCase):
    """Holding and waiting."""

    def setUp(self) -> None:
        self.client = shared.client()
        # Every test has its own class, with its own limits and holders.
        self.kind = self.id().rsplit(".", 1)[1].replace("_", "-")[:60]

    def test_one_of_fifty_requests_at_once_gets_one_free_slot(self) -> None:
        limit(self.client, self.kind, 1)
        all_asked = threading.Barrier(50)

        def work(_: int) -> str:
            try:
                with self.client.slot(self.kind, tenant="a", wait=0) as slot:
                    # The holder releases only after all others were refused.
                    all_asked.wait(PATIENCE_SECONDS)
                    return slot.id
            except bursar.Refused:
                all_asked.wait(PATIENCE_SECONDS)
                raise

        results = in_threads(50, work)
        refused = [result for result in results if isinstance(result, bursar.Refused)]
        granted = [result for result in results if isinstance(result, str)]
        self.assertEqual((len(granted), len(refused)), (1, 49), results)
        for error in refused:
            self.assertTrue(str(error).startswith("Resource limit exceeded"), str(error))
            told = (error.limit, error.dimension, error.size, error.in_use, error.code)
            self.assertEqual(told, (self.kind, "slots", 1, 1, "over-limit"))
            self.assertEqual(error.holders, [{"tenant": "a", "slots": 1}])
        self.assertEqual(held(self.client, self.kind), 0)

    def test_a_block_releases_with_its_outcome(self) -> None:
        with self.client.slot(self.kind) as well:
            well.check()
            self.assertTrue(well.held())
        with self.assertRaises(KeyError):
            with self.client.slot(self.kind) as badly:
                raise KeyError("work")
        with self.assertRaises(SystemExit):
            with self.client.slot(self.kind) as leaving:
                sys.exit(0)
        ends = [booking(self.client, slot.id) for slot in (well, badly, leaving)]
        self.assertEqual([end["outcome"] for end in ends], ["ok", "failed", "ok"])
        self.assertEqual({end["end"] for end in ends}, {"released"})
        self.assertEqual(self.client._keeper._slots, {})
        self.assertFalse(well.held())

    def test_quantities_of_a_request_are_read_like_kubernetes_does(self) -> None:
        options = {"cpu": "1.5", "memory": "256Mi", "priority": "high", "execution_id": "run-1"}
        with self.client.slot(self.kind, tenant="t", slots=2, gpus=0, **options) as slot:
            found = booking(self.client, slot.id)
        wanted = {"cpuMilli": 1_500, "memoryBytes": 256 << 20, "slots": 2, "tenant": "t"}
        wanted.update({"priority": "high", "executionId": "run-1", "class": self.kind})
        self.assertEqual({name: found.get(name) for name in wanted}, wanted)

    def test_a_released_slot_is_granted_to_a_waiting_client(self) -> None:
        limit(self.client, self.kind, 1)
        order: List[str] = []

        def wait(_: int) -> None:
            with self.client.slot(self.kind, wait=PATIENCE_SECONDS):
                order.append("second")

        first = self.client.slot(self.kind).acquire()
        second = threading.Thread(target=wait, args=(0,))
        second.start()
        eventually(lambda: waiting(self.client, self.kind))
        order.append("first")
        first.release()
        second.join(PATIENCE_SECONDS)
        self.assertEqual(order, ["first", "second"])
        self.assertEqual(held(self.client, self.kind), 0)

    def test_a_wait_that_is_over_names_the_limit(self) -> None:
        limit(self.client, self.kind, 1)
        with self.client.slot(self.kind, tenant="b"):
            with self.assertRaises(bursar.Refused) as caught:
                self.client.slot(self.kind, tenant="b", wait=0.1).acquire()
        error = caught.exception
        self.assertEqual((error.code, error.limit, error.in_use), ("wait-over", self.kind, 1))
        self.assertRegex(str(error), "^Resource limit exceeded: waited 0.1 s for ")
        repository = bursar.SyncResourceAllocationRepository(self.client)
        # A booking that was never granted is not an allocation.
        self.assertEqual(len(self.client.bookings(language=self.kind)), 2)
        self.assertEqual(len(repository.find_allocations(language=self.kind)), 1)

    def test_a_wait_without_end_is_as_long_as_the_limit_allows(self) -> None:
        limit(self.client, self.kind, 1, maxWait="1h")
        with self.client.slot(self.kind):
            with self.assertRaises(bursar.BursarError) as caught:
                self.client.slot(self.kind, wait=7_200).acquire()
            self.assertEqual(caught.exception.code, "invalid")
            endless = self.client.slot(self.kind)
            thread = threading.Thread(target=endless.acquire)
            thread.start()
            queued = eventually(lambda: waiting(self.client, self.kind))[0]
            most = bursar._moment(queued["waitUntil"]) - bursar._moment(queued["queuedAt"])
            self.assertEqual(most.total_seconds(), 3_600)
        thread.join(PATIENCE_SECONDS)
        self.assertEqual(endless.release()["applied"], True)

    def test_without_a_stated_maximum_shorter_waits_are_tried(self) -> None:
        refusal = {"code": "invalid", "errors": [{"path": "waitMs"}]}
        useless = {"field": "waitMs", "min": 0, "max": 86_400_000}
        for bounds in (None, {"field": "ttlMs", "min": 1, "max": 2}, useless):
            with Script([(400, {**refusal, "bounds": bounds}), (201, {})]) as script:
                bursar.Client(script.address)._put("/v1/bookings/x", {"waitMs": 86_400_000}, True)
            waits = [request["waitMs"] for _, _, request in script.requests]
            self.assertEqual(waits, [86_400_000, 43_200_000])

    def test_a_request_above_a_limit_is_refused_at_once(self) -> None:
        limit(self.client, self.kind, 3)
        with self.assertRaises(bursar.Refused) as caught:
            self.client.slot(self.kind, slots=4).acquire()
        self.assertEqual((caught.exception.code, caught.exception.size), ("never-fits", 3))

    def test_ctrl_c_in_the_queue_leaves_the_queue(self) -> None:
        limit(self.client, self.kind, 1)
        with self.client.slot(self.kind):
            waiter = self.client.slot(self.kind)

            def interrupt() -> None:
                eventually(lambda: waiting(self.client, self.kind))
                os.kill(os.getpid(), signal.SIGINT)

            thread = threading.Thread(target=interrupt)
            thread.start()
            with self.assertRaises(KeyboardInterrupt):
                with waiter:
                    self.fail("the slot is taken")
            thread.join(PATIENCE_SECONDS)
            self.assertEqual(waiting(self.client, self.kind), [])
            self.assertEqual(booking(self.client, waiter.id)["end"], "cancelled")

    def test_an_interrupted_request_whose_answer_was_lost_holds_nothing(self) -> None:
        slot = self.client.slot(self.kind)

        def interrupt() -> None:
            raise KeyboardInterrupt

        with after_first_call(self.client, interrupt), self.assertRaises(KeyboardInterrupt):
            slot.acquire()
        self.assertEqual(booking(self.client, slot.id)["end"], "released")

    def test_a_wait_that_is_given_up_as_it_is_granted_holds_nothing(self) -> None:
        slot = self.client.slot(self.kind)
        with after_first_call(self.client, slot._give_up), self.assertRaises(bursar._GivenUp):
            slot.acquire()
        self.assertEqual(booking(self.client, slot.id)["end"], "released")
        self.assertEqual(self.client._keeper._slots, {})

    def test_another_client_may_end_a_wait(self) -> None:
        limit(self.client, self.kind, 0)
        errors: List[BaseException] = []
        waiter = self.client.slot(self.kind)

        def wait() -> None:
            try:
                waiter.acquire()
            except bursar.NotGranted as error:
                errors.append(error)

        thread = threading.Thread(target=wait)
        thread.start()
        eventually(lambda: waiting(self.client, self.kind))
        self.client.call("POST", f"/v1/bookings/{waiter.id}/cancel", {})
        thread.join(PATIENCE_SECONDS)
        self.assertEqual([getattr(error, "end") for error in errors], ["cancelled"])

    def test_renewal_carries_a_slot_beyond_its_ttl(self) -> None:
        with self.client.slot(self.kind, ttl=2) as slot:
            # The ledger records a renewal only when a deadline is due, so two renewals are two ttl.
            eventually(lambda: booking(self.client, slot.id)["renewals"] >= 2)
            slot.check()
            self.assertTrue(slot.held())
        self.assertEqual(booking(self.client, slot.id)["end"], "released")

    def test_one_thread_renews_all_slots_and_ends_with_them(self) -> None:
        slots = [self.client.slot(self.kind, ttl=2).acquire() for _ in range(20)]
        renewers = [t for t in threading.enumerate() if t is self.client._keeper._thread]
        self.assertEqual(len(renewers), 1)
        for slot in slots:
            eventually(lambda: booking(self.client, slot.id)["renewals"] >= 1)
            slot.check()
        for slot in slots:
            slot.release()
        renewers[0].join(PATIENCE_SECONDS)
        self.assertFalse(renewers[0].is_alive())
        with self.client.slot(self.kind, ttl=2) as slot:
            eventually(lambda: booking(self.client, slot.id)["renewals"] >= 1)

    def test_a_holder_notices_a_forced_release(self) -> None:
        with self.assertRaises(bursar.Fenced) as caught:
            with self.client.slot(self.kind, ttl=3) as slot:
                force(self.client, slot.id)
                self.assertTrue(slot.lost.wait(PATIENCE_SECONDS))
                self.assertEqual(slot.lost.reason, "fenced")
                with self.assertRaises(bursar.Fenced):
                    slot.check()
        self.assertIn(slot.id, str(caught.exception))
        self.assertEqual(booking(self.client, slot.id)["end"], "forced")

    def test_a_block_with_an_unnoticed_forced_release_raises_fenced(self) -> None:
        with self.assertRaises(bursar.Fenced):
            with self.client.slot(self.kind) as slot:
                force(self.client, slot.id)
        self.assertTrue(slot.lost.is_set())

    def test_the_works_own_error_is_not_hidden_by_a_lost_slot(self) -> None:
        with self.assertRaises(KeyError):
            with self.client.slot(self.kind) as slot:
                force(self.client, slot.id)
                raise KeyError("work")

    def test_a_successful_exit_with_a_lost_slot_raises_fenced(self) -> None:
        with self.assertRaises(bursar.Fenced):
            with self.client.slot(self.kind) as slot:
                force(self.client, slot.id)
                sys.exit(0)

    def test_a_holder_that_was_stopped_at_its_deadline_notices_at_the_end(self) -> None:
        with self.assertRaises(bursar.Fenced) as caught:
            with self.client.slot(self.kind, ttl=1) as slot:
                # As if this process had been stopped: no renewal is sent.
                self.client._keeper.forget(slot)
                eventually(lambda: booking(self.client, slot.id).get("end") == "expired")
        self.assertRegex(str(caught.exception), "no renewal has succeeded since 20.*Z, .* 1 s")
        self.assertEqual((slot.lost.reason, slot.lost.is_set()), ("unrenewed", True))

    def test_an_interrupted_release_is_repeated_in_the_background(self) -> None:
        slot = self.client.slot(self.kind).acquire()
        real, calls = self.client.call, iter([KeyboardInterrupt])

        def call(*words: Any, **options: Any) -> Any:
            for error in calls:
                raise error
            return real(*words, **options)

        with mock.patch.object(self.client, "call", call):
            self.assertRaises(KeyboardInterrupt, slot.release, "failed")
            eventually(lambda: not self.client._keeper._releases)
        end = booking(self.client, slot.id)
        self.assertEqual((end["end"], end["outcome"]), ("released", "failed"))

    def test_the_second_release_has_no_effect(self) -> None:
        slot = self.client.slot(self.kind).acquire()
        first, second = slot.release("failed", exit_code=3), slot.release("ok")
        self.assertEqual((first["applied"], second["applied"]), (True, False))
        end = booking(self.client, slot.id)
        self.assertEqual((end["outcome"], end["exitCode"]), ("failed", 3))

    def test_the_same_id_again_is_the_same_slot(self) -> None:
        id = bursar._new_id("job")
        first = self.client.slot(self.kind, id=id).acquire()
        again = shared.client().slot(self.kind, id=id).acquire()
        self.assertEqual(first.fence, again.fence)
        self.assertEqual(held(self.client, self.kind), 1)
        again.release()
        with self.assertRaises(bursar.NotGranted) as caught:
            self.client.slot(self.kind, id=id).acquire()
        self.assertEqual(caught.exception.end, "released")

    def test_a_forked_child_does_not_release_slots_of_its_parent(self) -> None:
        with self.client.slot(self.kind) as slot:
            child = os.fork()
            if child == 0:
                code = 1
                with contextlib.suppress(BaseException):
                    slot.check()
                    slot.__exit__(None, None, None)
                    with self.client.slot(self.kind) as own:
                        own.check()
                    code = 0
                os._exit(code)
            self.assertEqual(os.waitpid(child, 0)[1], 0)
            self.assertTrue(slot.held())
            slot.check()


class AsyncSlots(unittest.IsolatedAsyncioTestCase):
    """The same from an event loop."""

    def setUp(self) -> None:
        self.client = shared.client()
        self.kind = self.id().rsplit(".", 1)[1].replace("_", "-")[:60]

    async def test_many_waiters_do_not_block_the_release_of_the_holder(self) -> None:
        limit(self.client, self.kind, 1)
        inside: List[str] = []

        async def work() -> None:
            async with self.client.async_slot(self.kind) as slot:
                inside.append(slot.id)
                self.assertEqual(len(set(inside)), len(inside))
                slot.check()

        await asyncio.gather(*[work() for _ in range(60)])
        self.assertEqual(len(inside), 60)
        self.assertEqual(held(self.client, self.kind), 0)

    async def test_a_cancelled_wait_leaves_the_queue(self) -> None:
        limit(self.client, self.kind, 1)
        async with self.client.async_slot(self.kind):
            waiter = self.client.async_slot(self.kind)
            task = asyncio.ensure_future(waiter.__aenter__())
            await bursar._in_thread(lambda: eventually(lambda: waiting(self.client, self.kind)))
            task.cancel()
            with self.assertRaises(asyncio.CancelledError):
                await task
            self.assertEqual(waiting(self.client, self.kind), [])
        self.assertEqual(held(self.client, self.kind), 0)

    async def test_cancelling_at_any_moment_holds_nothing(self) -> None:
        for turns in range(12):
            task = asyncio.ensure_future(self.client.async_slot(self.kind).__aenter__())
            for _ in range(turns):
                await asyncio.sleep(0)
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await (await task).__aexit__(None, None, None)
        eventually(lambda: held(self.client, self.kind) == 0)

    async def test_a_lost_slot_can_be_awaited(self) -> None:
        with self.assertRaises(bursar.Fenced):
            async with self.client.async_slot(self.kind, ttl=3) as slot:
                force(self.client, slot.id)
                reason = await asyncio.wait_for(slot.wait_lost(), PATIENCE_SECONDS)
                self.assertEqual(reason, "fenced")
                self.assertEqual(await slot.wait_lost(), "fenced")
                self.assertFalse(await slot.held())

    async def test_a_refusal_and_an_error_pass_through(self) -> None:
        limit(self.client, self.kind, 1)
        with self.assertRaises(KeyError):
            async with self.client.async_slot(self.kind) as slot:
                with self.assertRaises(bursar.Refused):
                    async with self.client.async_slot(self.kind, wait=0):
                        self.fail("the slot is taken")
                raise KeyError("work")
        self.assertEqual(booking(self.client, slot.id)["outcome"], "failed")


class Repositories(unittest.IsolatedAsyncioTestCase):
    """Repository of allocations."""

    def setUp(self) -> None:
        self.client = shared.client()
        self.kind = self.id().rsplit(".", 1)[1].replace("_", "-")[:60]
        self.seed = {**ALLOCATION, "language": self.kind}

    async def test_a_saga_runs_130_times_on_a_limit_of_100(self) -> None:
        repository = bursar.ResourceAllocationRepository(self.client)
        for number in range(130):
            execution_id = str(uuid.uuid4())
            if await repository.count_active(self.kind) >= 100:
                raise ValueError("Resource limit exceeded")
            await repository.create_allocation(
                allocation_id=execution_id, execution_id=execution_id, **self.seed
            )
            # A failed later step runs the compensation; a successful one releases as well.
            released = await repository.release_allocation(execution_id)
            assert released is not None
            self.assertEqual(released.status, "released", number)
        self.assertEqual(await repository.count_active(self.kind), 0)
        ended = await repository.find_allocations(language=self.kind, status="released")
        self.assertEqual(len(ended), 130)

    async def test_the_hundred_and_first_allocation_is_refused(self) -> None:
        limit(self.client, self.kind, 2)
        repository = bursar.ResourceAllocationRepository(self.client)
        ids = [str(uuid.uuid4()) for _ in range(3)]
        for id in ids[:2]:
            await repository.create_allocation(allocation_id=id, execution_id=id, **self.seed)
        self.assertEqual(await repository.count_active(self.kind), 2)
        with self.assertRaisesRegex(ValueError, "^Resource limit exceeded"):
            await repository.create_allocation(
                allocation_id=ids[2], execution_id=ids[2], **self.seed
            )
        self.assertIsNone(await repository.get_allocation(ids[2]))
        self.assertIsNone(await repository.release_allocation(ids[2]))
        for id in ids[:2]:
            await repository.release_allocation(id)

    async def test_an_allocation_has_its_fields(self) -> None:
        repository = bursar.ResourceAllocationRepository(self.client, tenant="t")
        id, execution = str(uuid.uuid4()), str(uuid.uuid4())
        created = await repository.create_allocation(
            allocation_id=id, execution_id=execution, **self.seed
        )
        wanted = {"allocation_id": id, "execution_id": execution, "status": "active", **self.seed}
        self.assertEqual({name: getattr(created, name) for name in wanted}, wanted)
        assert created.allocated_at is not None
        self.assertIsNotNone(created.allocated_at.tzinfo)
        self.assertIsNone(created.released_at)
        first = await repository.release_allocation(id)
        second = await repository.release_allocation(id)
        assert first is not None and first.released_at is not None
        self.assertEqual(first, second)
        self.assertEqual(first.status, "released")
        self.assertGreaterEqual(first.released_at, created.allocated_at)

    async def test_look_ups_are_by_execution_language_and_status(self) -> None:
        repository = bursar.ResourceAllocationRepository(self.client)
        ids = [str(uuid.uuid4()) for _ in range(3)]
        for id in ids:
            await repository.create_allocation(
                allocation_id=id, execution_id=ids[0], **self.seed
            )
        await repository.release_allocation(ids[1])

        async def found(**filters: str) -> List[str]:
            allocations = await repository.find_allocations(**filters)
            return sorted(allocation.allocation_id for allocation in allocations)

        self.assertEqual(await found(execution_id=ids[0]), sorted(ids))
        self.assertEqual(await found(language=self.kind), sorted(ids))
        self.assertEqual(await found(language=self.kind, status="released"), [ids[1]])
        active = await found(execution_id=ids[0], status="active")
        self.assertEqual(active, sorted([ids[0], ids[2]]))
        for id in ids:
            await repository.release_allocation(id)

    async def test_a_cancelled_creation_holds_nothing(self) -> None:
        repository = bursar.ResourceAllocationRepository(self.client)
        for turns in range(6):
            id = str(uuid.uuid4())
            creation = repository.create_allocation(
                allocation_id=id, execution_id=id, **self.seed
            )
            task = asyncio.ensure_future(creation)
            for _ in range(turns):
                await asyncio.sleep(0)
            task.cancel()
            with self.assertRaises(asyncio.CancelledError):
                await task
        eventually(lambda: held(self.client, self.kind) == 0)

    def test_fifty_threads_on_one_free_slot_of_the_repository(self) -> None:
        limit(self.client, self.kind, 1)
        repository = bursar.SyncResourceAllocationRepository(self.client)
        ids = [str(uuid.uuid4()) for _ in range(50)]
        results = in_threads(
            50,
            lambda number: repository.create_allocation(
                allocation_id=ids[number], execution_id=ids[number], **self.seed
            ),
        )
        granted = [result for result in results if isinstance(result, bursar.Allocation)]
        refused = [result for result in results if isinstance(result, ValueError)]
        self.assertEqual((len(granted), len(refused)), (1, 49), results)
        self.assertEqual(repository.count_active(self.kind), 1)
        # Another process, such as a compensation, releases by the id alone.
        other = bursar.SyncResourceAllocationRepository(shared.client())
        released = other.release_allocation(granted[0].allocation_id)
        assert released is not None
        self.assertEqual(released.status, "released")
        self.assertEqual(repository.count_active(self.kind), 0)

    def test_without_renewal_it_is_held_for_a_day_and_no_thread_runs(self) -> None:
        repository = bursar.SyncResourceAllocationRepository(self.client, renew=False)
        id = str(uuid.uuid4())
        repository.create_allocation(allocation_id=id, execution_id=id, **self.seed)
        self.assertEqual(booking(self.client, id)["ttlMs"], 86_400_000)
        self.assertIsNone(self.client._keeper._thread)
        repository.release_allocation(id)

    def test_an_allocation_is_renewed_until_it_is_released(self) -> None:
        repository = bursar.SyncResourceAllocationRepository(self.client)
        id = str(uuid.uuid4())
        repository.create_allocation(allocation_id=id, execution_id=id, **self.seed)
        self.assertIn(id, self.client._keeper._slots)
        repository.release_allocation(id)
        self.assertNotIn(id, self.client._keeper._slots)


class Executions(unittest.TestCase):
    """Programs that the server runs."""

    def setUp(self) -> None:
        self.client = shared.client()
        self.kind = self.id().rsplit(".", 1)[1].replace("_", "-")[:60]

    def test_a_program_runs_and_its_outcome_is_returned(self) -> None:
        for script, outcome, code in [("exit 0", "completed", 0), ("exit 7", "failed", 7)]:
            submitted = self.client.submit("/bin/sh", ["-c", script], self.kind)
            ended = self.client.execution(submitted.id, wait=PATIENCE_SECONDS)
            self.assertEqual((ended.outcome, ended.exit_code), (outcome, code))
            assert ended.started_at is not None and ended.ended_at is not None
            self.assertLessEqual(ended.started_at, ended.ended_at)
            self.assertEqual(len(ended.answer["steps"]), 6)
        self.assertEqual(held(self.client, self.kind), 0)

    def test_a_program_gains_no_privileges_by_default(self) -> None:
        for options, flag in [({}, "1"), ({"allow_privilege_escalation": True}, "0")]:
            script = f"grep -q 'NoNewPrivs:.{flag}' /proc/self/status"
            submitted = self.client.submit("/bin/sh", ["-c", script], self.kind, **options)
            ended = self.client.execution(submitted.id, wait=PATIENCE_SECONDS)
            self.assertEqual((ended.outcome, ended.exit_code), ("completed", 0), options)

    def test_a_program_gets_its_arguments_and_environment(self) -> None:
        script = 'test "$WORD" = given && test "$PWD" = /tmp && test -n "$BURSAR_FENCE"'
        options: Dict[str, Any] = {"env": {"WORD": "given"}, "directory": "/tmp", "tenant": "t"}
        options.update({"cpu": "250m", "memory": "64Mi", "max_time": 20, "id": "given-1"})
        self.client.submit("/bin/sh", ["-c", script], self.kind, **options)
        ended = self.client.execution("given-1", wait=None)
        told = {name: ended.answer.get(name) for name in ("tenant", "cpuMilli", "maxTimeMs")}
        self.assertEqual((ended.outcome, ended.reason), ("completed", None))
        self.assertEqual(told, {"tenant": "t", "cpuMilli": 250, "maxTimeMs": 20_000})
        again = self.client.submit("/bin/sh", ["-c", script], self.kind, **options)
        self.assertEqual((again.id, again.outcome), ("given-1", "completed"))

    def test_a_cancelled_program_is_stopped(self) -> None:
        limit(self.client, self.kind, 1)
        running = self.client.submit("/bin/sleep", ["1000"], self.kind, grace=1)
        self.addCleanup(self.client.cancel, running.id)
        queued = self.client.submit("/bin/true", [], self.kind)
        self.assertEqual(queued.state, "queued")
        with self.assertRaises(bursar.Refused):
            self.client.submit("/bin/true", [], self.kind, wait=0)
        eventually(lambda: self.client.execution(running.id).state == "running")
        self.assertNotEqual(self.client.execution(running.id, wait=0.05).state, "ended")
        self.client.cancel(running.id)
        ends = [self.client.execution(id, wait=None) for id in (running.id, queued.id)]
        self.assertEqual([end.outcome for end in ends], ["cancelled", "completed"])
        self.assertFalse(self.client.cancel(running.id).answer["applied"])


class Trouble(unittest.TestCase):
    """Servers that are unavailable, die, or send wrong answers."""

    def test_an_unavailable_server_admits_nothing(self) -> None:
        server = Server()
        self.addCleanup(server.close)
        client = server.client()
        with client.slot("python", id="before", ttl=3_600):
            pass
        server.kill()
        with mock.patch.object(client, "_attempt", wraps=client._attempt) as attempt:
            with self.assertRaises(bursar.Unavailable) as caught:
                client.slot("python", id="while-away").acquire()
        self.assertIn("cannot reach", str(caught.exception))
        attempt.assert_called_once()
        self.assertRaises(bursar.Unavailable, client.bookings)
        repository = bursar.SyncResourceAllocationRepository(client)
        with self.assertRaises(bursar.Unavailable):
            repository.create_allocation(allocation_id="a", execution_id="a", **ALLOCATION)
        server.start()
        self.assertEqual([item["id"] for item in client.bookings()], ["before"])

    def test_a_holder_without_a_server_loses_the_slot_at_the_deadline(self) -> None:
        server = Server()
        self.addCleanup(server.close)
        with self.assertLogs("bursar", "WARNING") as logs:
            with self.assertRaises(RuntimeError):
                with server.client().slot("python", ttl=1) as slot:
                    server.kill()
                    self.assertTrue(slot.lost.wait(PATIENCE_SECONDS))
                    self.assertEqual(slot.lost.reason, "unrenewed")
                    self.assertRaises(bursar.Fenced, slot.check)
                    raise RuntimeError("the work's own")
        self.assertIn(f"{slot.id} was not given back: cannot reach", logs.output[-1])
        self.assertRegex(logs.output[-1], "its ttl ends it at 20.*, or one ttl after the server")
        server.start()

    def test_a_block_with_an_expired_slot_raises_fenced_for_any_answer(self) -> None:
        for is_back in (False, True):
            server = Server()
            self.addCleanup(server.close)
            with self.assertRaises(bursar.Fenced) as caught:
                with server.client().slot("python", ttl=2) as slot:
                    server.kill()
                    self.assertTrue(slot.lost.wait(PATIENCE_SECONDS))
                    if is_back:
                        server.start()
                        # After a restart every holder has a whole ttl, and the release is accepted.
                        self.assertTrue(slot.held())
            self.assert_says_why(caught.exception, slot)
            if is_back:
                self.assertEqual(booking(server.client(), slot.id)["end"], "released")

    def assert_says_why(self, error: bursar.Fenced, slot: Any) -> None:
        self.assertRegex(str(error), f"^slot {slot.id} is no longer held: no renewal has succeeded")
        self.assertRegex(str(error), "since 20..-..-..T..:..:..Z, .*: cannot reach unix:")
        self.assertEqual(slot.lost.reason, "unrenewed")
        self.assertEqual(error.problem["cause"], slot.lost.problem)
        self.assertEqual(slot.lost.problem["code"], "unreachable")

    def test_an_async_block_and_an_allocation_raise_fenced_too(self) -> None:
        server = Server()
        self.addCleanup(server.close)
        client = server.client()

        async def block() -> Any:
            async with client.async_slot("python", ttl=2) as slot:
                inside.append(slot)
                server.kill()
                self.assertEqual(await slot.wait_lost(), "unrenewed")

        inside: List[bursar.AsyncSlot] = []
        with mock.patch.object(bursar, "TTL_SECONDS", 2.0):
            repositories = [bursar.ResourceAllocationRepository(client) for _ in range(2)]
            for number, repository in enumerate(repositories):
                id = f"allocation-{number}"
                repository.sync.create_allocation(allocation_id=id, execution_id=id, **ALLOCATION)
        with self.assertRaises(bursar.Fenced) as caught:
            asyncio.run(block())
        self.assert_says_why(caught.exception, inside[0])
        slots = [repository.sync._held[f"allocation-{n}"] for n, repository in
                 enumerate(repositories)]
        for slot in slots:
            self.assertTrue(slot.lost.wait(PATIENCE_SECONDS))
        with self.assertRaises(bursar.Fenced) as caught:
            repositories[0].sync.release_allocation("allocation-0")
        self.assert_says_why(caught.exception, slots[0])
        server.start()
        with self.assertRaises(bursar.Fenced) as caught:
            asyncio.run(repositories[1].release_allocation("allocation-1"))
        self.assert_says_why(caught.exception, slots[1])
        again = repositories[1].sync.release_allocation("allocation-1")
        assert again is not None
        self.assertEqual(again.status, "released")

    def test_a_block_with_an_expired_token_raises_fenced_with_the_problem(self) -> None:
        secret = shared.command("token", "create", "brief", "--role", "use", "--tenant", "acme",
                                "--expires", "3s")
        path = shared.home / "brief.token"
        path.write_text(secret)
        path.chmod(0o600)
        client = bursar.Client(shared.address, token_file=str(path))
        with self.assertRaises(bursar.Fenced) as caught:
            with client.slot("brief", ttl=2) as slot:
                self.assertTrue(slot.lost.wait(PATIENCE_SECONDS))
        self.assertEqual(slot.lost.reason, "unrenewed")
        cause = caught.exception.problem["cause"]
        self.assertEqual((cause["code"], cause["status"]), ("unauthenticated", 401))
        self.assertIn(cause["detail"], str(caught.exception))

    def test_a_release_survives_a_restart_of_the_server(self) -> None:
        server = Server()
        self.addCleanup(server.close)
        client = server.client()
        repository = bursar.SyncResourceAllocationRepository(client)
        repository.create_allocation(allocation_id="kept", execution_id="kept", **ALLOCATION)
        other = bursar.SyncResourceAllocationRepository(server.client(), renew=False)
        other.create_allocation(allocation_id="by-id", execution_id="by-id", **ALLOCATION)
        slot = client.slot("python", ttl=600, id="block").acquire()
        server.kill()
        results: List[Any] = []
        works: List[Callable[[], Any]] = [
            lambda: slot.__exit__(None, None, None),
            lambda: repository.release_allocation("kept"),
            lambda: other.release_allocation("by-id"),
        ]

        def start() -> None:
            eventually(lambda: len(client._keeper._releases) == 2)
            server.start()

        results = in_threads(4, lambda number: [*works, start][number]())
        self.assertEqual([getattr(result, "status", result) for result in results],
                         [None, "released", "released", None])
        ends = [booking(client, id) for id in ("block", "kept", "by-id")]
        self.assertEqual([end["end"] for end in ends], ["released"] * 3)
        self.assertEqual(ends[0]["outcome"], "ok")

    def test_a_release_is_repeated_after_the_block_until_the_server_is_back(self) -> None:
        server = Server()
        self.addCleanup(server.close)
        client = server.client()
        with mock.patch.object(bursar, "RELEASE_SECONDS", 0.3):
            with self.assertLogs("bursar", "WARNING") as logs:
                with client.slot("python", ttl=600, id="block"):
                    server.kill()
        self.assertIn("slot block was not given back: cannot reach", logs.output[0])
        self.assertRegex(logs.output[0], "its ttl ends it at 20.*; until then this is repeated")
        self.assertEqual(len(client._keeper._releases), 1)
        server.start()
        eventually(lambda: booking(client, "block").get("end") == "released")

    def test_a_release_is_repeated_until_the_deadline_and_no_longer(self) -> None:
        server = Server()
        self.addCleanup(server.close)
        client = server.client()
        with self.assertLogs("bursar", "WARNING") as logs:
            with mock.patch.object(bursar, "RELEASE_SECONDS", 0.3):
                with client.slot("python", ttl=5, id="block") as slot:
                    server.kill()
            eventually(lambda: not client._keeper._releases)
        self.assertLessEqual(bursar._now(), slot._deadline + 1)
        self.assertEqual(len([line for line in logs.output if "not given back" in line]), 2)
        self.assertFalse(slot.lost.is_set())
        server.start()

    def test_an_answer_ends_the_repetition(self) -> None:
        granted = (201, {"id": "x", "state": "granted", "fence": 7})
        taken = {"status": 409, "code": "stale-fence", "detail": "booking x was forced"}
        # The first attempt finds a closed kept connection and opens a new one.
        with Script([granted, None, None, (200, {"results": [taken]})]) as script:
            client = bursar.Client(script.address)
            with self.assertRaises(bursar.Fenced) as caught:
                with client.slot("python", id="x"):
                    pass
        self.assertIn("booking x was forced", str(caught.exception))
        self.assertEqual((len(script.requests), client._keeper._releases), (4, []))
        operation = {"op": "release", "id": "x", "fence": 7, "outcome": "ok"}
        self.assertEqual(script.requests[3][2], {"operations": [operation]})

    def test_without_a_thread_the_caller_repeats_the_release(self) -> None:
        client = shared.client()
        slot = client.slot("last", id="last-words").acquire()
        client._keeper.forget(slot)
        eventually(lambda: client._keeper._thread is None)
        real, away = client.call, iter([bursar.Unavailable({"code": "unreachable"})])

        def call(*words: Any, **options: Any) -> Any:
            for error in away:
                raise error
            return real(*words, **options)

        no_thread = RuntimeError("can't create new thread at interpreter shutdown")
        with mock.patch.object(client, "call", call):
            with mock.patch.object(threading.Thread, "start", side_effect=no_thread):
                self.assertEqual(slot.release()["end"], "released")

    def test_an_exiting_process_waits_for_its_releases_and_logs_the_rest(self) -> None:
        for is_back in (True, False):
            server = Server()
            self.addCleanup(server.close)
            words = [sys.executable, "-B", "-W", "error", "-c", EXITS, server.socket]
            process = subprocess.Popen(
                [*words, "10" if is_back else "1"],
                cwd=HERE,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            assert process.stdin is not None and process.stdout is not None
            self.assertEqual(process.stdout.readline(), "held\n")
            server.kill()
            process.stdin.write("go\n")
            process.stdin.flush()
            self.assertEqual(process.stdout.readline(), "away\n")
            if is_back:
                server.start()
            said = process.communicate(timeout=PATIENCE_SECONDS)[1]
            self.assertEqual(process.returncode, 0, said)
            if is_back:
                self.assertEqual((said, booking(server.client(), "x")["end"]), ("", "released"))
            else:
                self.assertIn("slot x was not given back: cannot reach ", said)

    def test_a_slot_survives_a_restart_of_the_server(self) -> None:
        server = Server()
        self.addCleanup(server.close)
        with server.client().slot("python", ttl=20) as slot:
            server.kill()
            server.start()
            self.assertTrue(slot.held())
            slot.check()

    def test_a_place_in_the_queue_survives_a_restart_of_the_server(self) -> None:
        server = Server()
        self.addCleanup(server.close)
        client = server.client()
        limit(client, "python", 1)
        first = client.slot("python", ttl=600).acquire()
        second = client.slot("python")
        waiter = threading.Thread(target=second.acquire)
        waiter.start()
        eventually(lambda: waiting(client, "python"))
        server.kill()
        server.start()
        first.release()
        waiter.join(PATIENCE_SECONDS)
        self.assertFalse(waiter.is_alive())
        self.assertTrue(second.held())
        second.release()

    def test_a_wait_in_the_queue_survives_an_outage(self) -> None:
        client = shared.client()
        away = bursar.Unavailable({"code": "unreachable"})
        queued, granted = {"state": "queued"}, {"state": "granted", "fence": 7}
        answers = [(202, queued), away, away, (200, granted), (200, granted)]
        with mock.patch.object(client, "call", side_effect=answers) as call:
            slot = client.slot("python").acquire()
            client._keeper.forget(slot)
        self.assertEqual([used.args[0] for used in call.mock_calls], ["PUT", *["GET"] * 3, "POST"])

    def test_a_wait_for_an_unavailable_server_has_an_end(self) -> None:
        queued = (202, {"id": "x", "state": "queued"})
        with Script([queued] + [None] * 1_000) as script:
            client = bursar.Client(script.address, timeout=0.5)
            slot = client.slot("python", id="x")
            with self.assertRaises(bursar.Unavailable):
                slot.acquire()
        # The client also tried to leave the queue.
        self.assertIn("/v1/bookings/x/cancel", [path for _, path, _ in script.requests])

    def test_unknown_fields_in_answers_are_ignored(self) -> None:
        granted = {"id": "x", "state": "granted", "fence": 7, "novelty": {"deep": [1]}}
        ended = {"id": "x", "state": "ended", "end": "released", "applied": True, "more": 1}
        with Script([(201, granted), (200, ended)]) as script:
            with bursar.Client(script.address).slot("python") as slot:
                self.assertEqual(slot.fence, 7)
        full = {"code": "over-limit", "limits": [{"name": "l", "size": 1, "hue": "red"}], "x": 1}
        with Script([(429, full)]) as script:
            with self.assertRaises(bursar.Refused) as caught:
                bursar.Client(script.address).slot("python").acquire()
        self.assertEqual((caught.exception.limit, caught.exception.size), ("l", 1))

    def test_an_unknown_outcome_is_repeated_under_the_same_id(self) -> None:
        unknown = (504, {"code": "outcome-unknown", "detail": "not durable in time"})
        granted = (200, {"id": "x", "state": "granted", "fence": 7})
        renewed = (200, {"id": "x", "state": "granted"})
        with Script([unknown, unknown, granted, renewed]) as script:
            bursar.Client(script.address).slot("python", id="x").acquire()
        asked = [request[:2] for request in script.requests]
        self.assertEqual(asked[:3], [("PUT", "/v1/bookings/x")] * 3)
        self.assertEqual(asked[3], ("POST", "/v1/bookings/x/renew"))

    def test_an_unknown_outcome_is_raised_and_the_booking_is_ended(self) -> None:
        unknown = (504, {"code": "outcome-unknown", "detail": "not durable in time"})
        with Script([unknown] * 20) as script:
            client = bursar.Client(script.address, timeout=0.5)
            slot = client.slot("python", id="x")
            slot._briefly = lambda *words: left.append(words[:2]) or {}  # type: ignore
            left: List[Any] = []
            with self.assertRaises(bursar.OutcomeUnknown):
                slot.acquire()
        self.assertEqual(left, [("PUT", "/v1/bookings/x"), ("POST", "/v1/bookings/x/cancel")])
        self.assertLessEqual(len(script.requests), bursar.ATTEMPTS_MAX)

    def test_a_call_to_a_busy_server_is_repeated_and_then_unavailable(self) -> None:
        busy = (503, {"code": "busy", "detail": "the intake is full"})
        done = (200, {"items": [{"id": "x"}]})
        with Script([busy, done]) as script:
            self.assertEqual(bursar.Client(script.address).bookings(), [{"id": "x"}])
        with Script([busy] * 3) as script:
            client = bursar.Client(script.address)
            with self.assertRaises(bursar.Unavailable) as caught:
                client.call("GET", "/v1/bookings", attempts=3)
        self.assertEqual((caught.exception.code, caught.exception.status), ("busy", 503))

    def test_a_call_with_a_lost_answer_is_repeated(self) -> None:
        done = (200, {"items": []})
        with Script([None, "half", done]) as script:
            self.assertEqual(bursar.Client(script.address).bookings(), [])
        self.assertEqual(len(script.requests), 3)
        with Script([None, None]) as script:
            client = bursar.Client(script.address)
            with self.assertRaises(bursar.OutcomeUnknown):
                client.call("POST", "/v1/bookings/x/cancel", {}, attempts=2)
        with Script([None, None]) as script:
            client = bursar.Client(script.address)
            with self.assertRaises(bursar.Unavailable):
                client.call("GET", "/v1/bookings", attempts=2)

    def test_an_answer_of_another_server_is_an_error(self) -> None:
        for answer in [(200, "hello"), (500, "oops"), (200, [1])]:
            with Script([answer]) as script:
                with self.assertRaises(bursar.BursarError) as caught:
                    bursar.Client(script.address).bookings()
            self.assertEqual(caught.exception.code, "protocol")

    def test_a_call_to_a_silent_server_times_out(self) -> None:
        with Script(["silence"]) as script:
            client = bursar.Client(script.address, timeout=0.2)
            with self.assertRaises(bursar.OutcomeUnknown) as caught:
                client.call("POST", "/v1/bookings/x/cancel", {})
        self.assertEqual(caught.exception.code, "timeout")

    def test_errors_survive_pickling(self) -> None:
        problem = {"code": "over-limit", "detail": "full", "limits": [{"name": "l"}]}
        problem["retryAfterMs"] = 1_500
        again = pickle.loads(pickle.dumps(bursar.Refused(problem)))
        self.assertEqual(str(again), "Resource limit exceeded: full")
        self.assertEqual((again.limit, again.retry_after, again.problem), ("l", 1.5, problem))


#: Releases on a daemon thread, and ends before the release does.
EXITS = """
import sys, threading, bursar
bursar.RELEASE_SECONDS = float(sys.argv[2])
client = bursar.Client(sys.argv[1])
slot = client.slot("python", ttl=600, id="x").acquire()
print("held", flush=True)
sys.stdin.readline()
def release():
    try:
        slot.release()
    except bursar.Unavailable:
        pass
threading.Thread(target=release, daemon=True).start()
while not any(release.error for release in client._keeper._releases):
    pass
print("away", flush=True)
"""


class Script:
    """A server with prepared answers, one for each request: a status with JSON or text, none
    (`None`, the connection closes), `half` an answer, or `silence`."""

    def __init__(self, answers: List[Any]) -> None:
        self.requests: List[Tuple[str, str, Any]] = []
        self._left = iter(answers)
        self._over = threading.Event()
        script = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle_any(self) -> None:
                script._answer(self)

            do_GET = do_PUT = do_POST = handle_any

            def log_message(self, *_: Any) -> None:
                """Logs nothing."""

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.address = f"http://127.0.0.1:{self._server.server_address[1]}"

    def _answer(self, handler: Any) -> None:
        raw = handler.rfile.read(int(handler.headers.get("Content-Length", 0)))
        self.requests.append((handler.command, handler.path, json.loads(raw or b"null")))
        answer = next(self._left, None)
        if answer == "silence":
            self._over.wait(PATIENCE_SECONDS)
        if answer == "half":
            handler.wfile.write(b'HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{"items"')
        if not isinstance(answer, tuple):
            handler.close_connection = True
            return
        status, body = answer
        data = body.encode() if isinstance(body, str) else json.dumps(body).encode()
        handler.send_response(status)
        handler.send_header("Content-Length", str(len(data)))
        handler.end_headers()
        handler.wfile.write(data)

    def __enter__(self) -> Script:
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()
        return self

    def __exit__(self, *_: Any) -> None:
        self._over.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class Discovery(unittest.TestCase):
    """Discovery of the server and the token."""

    def setUp(self) -> None:
        directory = tempfile.TemporaryDirectory(prefix="bursar-")
        self.addCleanup(directory.cleanup)
        self.home = pathlib.Path(directory.name)
        self.environment = {"HOME": str(self.home), "XDG_RUNTIME_DIR": str(self.home / "run")}

    def found(self, **options: Any) -> Tuple[str, Any]:
        given = {"server": None, "context": None, "token_file": None, **options}
        found = bursar._discover(environment=self.environment, **given)
        return found.address, found.token

    def write(self, name: str, text: str, mode: int = 0o600) -> str:
        path = self.home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(mode)
        return str(path)

    def test_the_first_setting_that_is_present_wins(self) -> None:
        with self.assertRaisesRegex(bursar.Unavailable, "no server found; tried .*bursar up"):
            self.found()
        socket = self.write("run/bursar/api.sock", "")
        self.assertEqual(self.found(), (f"unix:{socket}", None))
        self.write(".config/bursar/config.toml", CONFIG)
        self.write("lab.token", "secret\n")
        self.assertEqual(self.found(), ("http://lab:7171", "secret"))
        self.environment["BURSAR_CONTEXT"] = "two"
        self.assertEqual(self.found(), ("http://two", None))
        self.environment["BURSAR_TOKEN_FILE"] = self.write("other.token", "other")
        self.assertEqual(self.found(context="lab"), ("http://lab:7171", "other"))
        self.environment["BURSAR_SERVER"] = "http://three"
        self.assertEqual(self.found()[0], "http://three")
        self.assertEqual(self.found(context="lab")[0], "http://lab:7171")
        self.assertEqual(self.found(server="http://four", context="lab")[0], "http://four")
        demo = f"unix:{self.home}/.local/share/bursar/demo/api.sock"
        self.assertEqual(self.found(context="demo")[0], demo)
        with self.assertRaisesRegex(ValueError, "context `l` is not known; contexts are demo, lab"):
            self.found(context="l")

    def test_a_token_that_others_can_read_is_refused(self) -> None:
        for mode in (0o644, 0o640, 0o604):
            path = self.write("token", "secret", mode)
            with self.assertRaisesRegex(PermissionError, "can be read by others"):
                self.found(server="http://x", token_file=path)
        path = self.write("token", "two words")
        with self.assertRaisesRegex(ValueError, "does not hold one token"):
            self.found(server="http://x", token_file=path)

    def test_the_plain_toml_reader_agrees_with_tomllib_or_refuses(self) -> None:
        plain = bursar._read_plain_toml(CONFIG, "config.toml")
        self.assertEqual(plain["current"], "lab")
        if sys.version_info >= (3, 11):
            import tomllib

            self.assertEqual(plain, tomllib.loads(CONFIG))
        for line in ['a = "\\u0041"', "a = 1", 'a.b = "c"', "a = [", '"a" = "b"', 'a = """b"""']:
            with self.assertRaisesRegex(ValueError, "config.toml:1: "):
                bursar._read_plain_toml(line, "config.toml")

    def test_a_wrong_address_is_refused_at_once(self) -> None:
        for address in ["ftp://x", "x:1", "http://", "http://a@x", "http://x/path", "https://x"]:
            with self.assertRaisesRegex(ValueError, "TLS|is not a server"):
                bursar.Client(address)

    def test_over_tcp_a_token_identifies_the_caller(self) -> None:
        secret = shared.command("token", "create", "ci", "--role", "use", "--tenant", "acme")
        client = bursar.Client(shared.address, token_file=self.write("ci.token", secret))
        with client.slot("over-tcp") as slot:
            self.assertEqual(booking(client, slot.id)["tenant"], "acme")
        with self.assertRaises(bursar.BursarError) as caught:
            client.slot("over-tcp", tenant="other").acquire()
        self.assertEqual((caught.exception.code, caught.exception.status), ("not-allowed", 403))
        nobody = bursar.Client(shared.address)
        with self.assertRaises(bursar.BursarError) as caught:
            nobody.slot("over-tcp").acquire()
        self.assertIn(caught.exception.status, (401, 403))


CONFIG = """# Servers of mine.
current = "lab"   # the nearest

[context.lab]
server     = "http://lab:7171"
token-file = "~/lab.token"
namespace  = 'speech # not a comment'

[context."two"]
server = "http://two"
"""


class Values(unittest.TestCase):
    """Quantities, ids and times."""

    def test_quantities_are_read_as_kubernetes_reads_them(self) -> None:
        for text, milli in [
            ("500m", 500), ("2", 2_000), ("1.5", 1_500), (".5", 500), ("0.0001", 1), ("1n", 1),
            ("2e3", 2_000_000), ("2E-3", 2), ("1e-999999999", 1), ("0e999999999", 0), ("-0", 0),
            ("+1", 1_000), ("1k", 1_000_000), (3, 3_000),
        ]:
            self.assertEqual(bursar._cpu_milli(text), milli, text)
        for text, size in [
            ("256Mi", 256 << 20), ("4Gi", 4 << 30), ("1.5Ki", 1_536), ("1M", 10**6), ("1", 1),
            ("0.1", 1), ("100m", 1), ("7Pi", 7 << 50),
        ]:
            self.assertEqual(bursar._memory_bytes(text), size, text)
        wrong = ["", ".", "m", "1.2.3", "1 Mi", "1mi", "1e", "0x1", "-1", "8Pi", "1e999", "1" * 65]
        for text in wrong:
            with self.assertRaises(ValueError, msg=text):
                bursar._memory_bytes(text)

    def test_quantities_are_written_as_kubernetes_writes_them(self) -> None:
        self.assertEqual([bursar._cpu_text(n) for n in (1_500, 2_000, 0)], ["1500m", "2", "0"])
        sizes = [256 << 20, 1_000, 1 << 30, 0]
        self.assertEqual([bursar._memory_text(n) for n in sizes], ["256Mi", "1000", "1Gi", "0"])

    def test_ids_end_in_a_uuid_of_version_7_and_differ(self) -> None:
        ids = [bursar._new_id("slot") for _ in range(1_000)]
        self.assertEqual(len(set(ids)), 1_000)
        for id in ids:
            value = uuid.UUID(id[len("slot-") :])
            self.assertEqual((value.version, value.variant), (7, uuid.RFC_4122))

    def test_durations_are_rounded_up(self) -> None:
        lengths = [bursar._milliseconds(seconds) for seconds in (0, 0.0001, 0.25, 30, None)]
        self.assertEqual(lengths, [0, 1, 250, 30_000, None])

    def test_pauses_grow_randomly_up_to_a_maximum(self) -> None:
        pause = bursar._Pause()
        lengths = [pause.next() for _ in range(12)]
        full = [min(0.1 * 2**n, 5.0) for n in range(12)]
        for length, longest in zip(lengths, full):
            self.assertTrue(longest / 2 <= length <= longest)


class Page(unittest.TestCase):
    """The examples of the README."""

    def test_every_example_runs(self) -> None:
        for example in python_blocks((HERE / "README.md").read_text()):
            environment = {
                **os.environ,
                "BURSAR_SERVER": shared.socket,
                "PYTHONPATH": str(HERE),
                "PYTHONDONTWRITEBYTECODE": "1",
            }
            words = [sys.executable, "-W", "error", "-c", example]
            ended = subprocess.run(
                words, env=environment, capture_output=True, text=True, timeout=PATIENCE_SECONDS
            )
            self.assertEqual(ended.returncode, 0, f"{example}\n{ended.stderr}")
            for line in re.findall(r"# prints (.*)", example):
                self.assertIn(line, ended.stdout, example)


def python_blocks(text: str) -> Iterator[str]:
    """Python blocks of a page; an empty result would mean that the search is broken."""
    blocks = re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    assert len(blocks) >= 3, "the README has lost its examples"
    return iter(blocks)


if __name__ == "__main__":
    unittest.main()
