"""Streams: long answers end with the token of their caller.

A token is revoked or expires while its bearer reads. Within two seconds the stream ends with the event
`signed-out`, and the long poll and the followed output end too.
"""

from __future__ import annotations

import threading
import time
import unittest
from typing import List, Optional

import rig

#: The server promises one second; the rest is for a slow machine.
END_SECONDS = 2.0
HOUR_MS = 3_600_000


class Listener(threading.Thread):
    """Reads an answer until it ends, and notes the time."""

    def __init__(self, server: rig.Server, path: str, token: str) -> None:
        super().__init__(name=path, daemon=True)
        self.connection = rig.connect(server.address)
        self.connection.request("GET", path, headers={"Authorization": f"Bearer {token}"})
        self.status: Optional[int] = None
        self.read = b""
        self.ended_at: Optional[float] = None

    def run(self) -> None:
        """Reads until the end."""
        try:
            response = self.connection.getresponse()
            self.status = response.status
            while True:
                more = response.read1(65536)
                if not more:
                    break
                self.read += more
        except Exception as error:  # Being cut off is one way to end.
            self.read += f"\n({error!r})".encode()
        finally:
            self.ended_at = time.monotonic()
            self.connection.close()

    def text(self) -> str:
        """The text so far."""
        return self.read.decode("utf-8", "replace")


class Streams(unittest.TestCase):
    """One server, and tokens that are revoked or expire."""

    @classmethod
    def setUpClass(cls) -> None:
        cls.sandbox = rig.Sandbox()
        cls.addClassCleanup(cls.sandbox.close)
        cls.server = cls.sandbox.up()
        server = cls.server
        server.must("PUT", "/v1/limits/one", rig.limit("one", **{"class": "one", "slots": 1}))
        for id in ("held", "waits"):
            body = {"class": "one", "tenant": "acme", "ttlMs": HOUR_MS, "waitMs": HOUR_MS}
            server.must("PUT", f"/v1/bookings/{id}", body)
        run = {"class": "run", "tenant": "acme", "command": "/bin/sh"}
        script = "echo begun; exec sleep 600"
        server.must("PUT", "/v1/executions/run", {**run, "args": ["-c", script], "graceMs": 0})
        logs = "/v1/executions/run/logs"
        rig.eventually(lambda: "begun" in server.ask("GET", logs).text())

    @classmethod
    def tearDownClass(cls) -> None:
        cls.server.must("POST", "/v1/executions/run/cancel", {})
        rig.eventually(lambda: cls.server.must("GET", "/v1/executions/run")["state"] == "ended")

    def listen(self, token: str) -> List[Listener]:
        """Opens a stream, a long poll and a followed log."""
        stream = Listener(self.server, "/v1/events?from=0", token)
        poll = Listener(self.server, "/v1/bookings/waits?wait=60s", token)
        logs = Listener(self.server, "/v1/executions/run/logs?follow=true&stream=stdout", token)
        for listener in (stream, poll, logs):
            listener.start()
        rig.eventually(lambda: "booking.granted" in stream.text() and "begun" in logs.text())
        return [stream, poll, logs]

    def assert_ended(self, listeners: List[Listener], since: float) -> None:
        """All of them end in time, each in its own way."""
        for listener in listeners:
            listener.join(max(0.0, since + END_SECONDS - time.monotonic()))
            message = f"{listener.name} has not ended: {listener.text()[-300:]}"
            self.assertIsNotNone(listener.ended_at, message)
        stream, poll, _ = listeners
        self.assertIn("event: signed-out", stream.text())
        self.assertEqual(poll.status, 401, poll.text())

    def test_events_after_the_end_of_a_token_are_not_sent(self) -> None:
        listeners = self.listen(self.server.token("late", "use", ["acme"]))
        self.server.must("DELETE", "/v1/tokens/late")
        self.server.must("PUT", "/v1/bookings/after-the-end", {"class": "late", "tenant": "acme"})
        for listener in listeners:
            listener.join(END_SECONDS)
            self.assertNotIn("after-the-end", listener.text())

    def test_a_revoked_token_ends_its_streams(self) -> None:
        listeners = self.listen(self.server.token("revoked", "use", ["acme"]))
        since = time.monotonic()
        self.server.must("DELETE", "/v1/tokens/revoked")
        self.assert_ended(listeners, since)

    def test_an_expired_token_ends_its_streams(self) -> None:
        since = time.monotonic() + 3
        body = {"name": "expired", "roles": ["use"], "tenants": ["acme"], "expires": "3s"}
        listeners = self.listen(self.server.must("POST", "/v1/tokens", body)["secret"])
        self.assert_ended(listeners, since)

    def test_the_streams_of_a_valid_token_continue(self) -> None:
        listeners = self.listen(self.server.token("good", "use", ["acme"]))
        self.server.must("PUT", "/v1/bookings/streamed", {"class": "late", "tenant": "acme"})
        rig.eventually(lambda: "booking/streamed" in listeners[0].text())
        self.assertEqual([listener.ended_at for listener in listeners], [None, None, None])
        self.server.must("DELETE", "/v1/tokens/good")
