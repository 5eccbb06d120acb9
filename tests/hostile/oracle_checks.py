"""Tests of the oracle: an oracle that finds nothing would accept every run."""

from __future__ import annotations

import unittest
from typing import Any, Dict, List, Optional

import money
import oracle


class Oracle(unittest.TestCase):
    """The oracle finds each broken rule in a small history."""

    def setUp(self) -> None:
        request = {"class": "red", "tenant": "ada", "slots": 1, "ttlMs": 1000, "waitMs": 60_000}
        self.events: List[List[Dict[str, Any]]] = [
            [{"genesis": {"ledger": "l", "format": 1}}],
            [{"limitSet": {"name": "red", "class": {"named": "red"}, "slots": 1}}],
            [{"reserved": {"id": "a", **request, "fence": 1}}],
            [{"reserved": {"id": "b", **request}}],
            [{"reserved": {"id": "c", **request}}],
            [{"ended": {"id": "a", "end": "released"}}, {"granted": {"id": "b", "fence": 2}}],
            [{"resumed": {"wall": 6000}}],
            [{"ended": {"id": "b", "end": "expired", "t": 7000}}, {"granted": {"id": "c", "fence": 3}}],
        ]
        self.notes = [
            self.note("reserve", "a", None, 201, 2, state="granted", fence=1),
            self.note("reserve", "b", None, 202, 3, state="queued"),
            self.note("reserve", "c", None, None, -1),
            self.note("release", "a", 1, 200, 5, state="ended", end="released", fence=1),
            self.note("look", "b", None, 200, 6, state="granted", fence=2),
        ]

    @staticmethod
    def note(
        what: str, name: str, sent: Optional[int], status: Optional[int], record: int, **body: Any
    ) -> oracle.Note:
        """An answer to a client."""
        return oracle.Note(0, what, name, sent, status, {**body, "record": record})

    def findings(self) -> str:
        """Findings in the present history."""
        records = [
            {"seq": seq, "t": seq * 1000, "ev": events} for seq, events in enumerate(self.events)
        ]
        return "\n".join(oracle.judge_records(records, self.notes).findings)

    def test_a_good_history_has_no_findings(self) -> None:
        self.assertEqual(self.findings(), "")

    def test_it_finds_a_grant_above_a_limit(self) -> None:
        del self.events[5][0]
        self.assertIn("limit red of 1 slots has 2 in use", self.findings())

    def test_it_finds_a_grant_above_a_lowered_limit(self) -> None:
        self.events[4].append({"limitSet": {"name": "all", "slots": 0}})
        self.assertIn("limit all of 0 slots has 1 in use", self.findings())

    def test_it_finds_a_fence_that_does_not_rise(self) -> None:
        self.events[7][1]["granted"]["fence"] = 2
        self.assertIn("fence 2 of c is not above 2", self.findings())

    def test_it_finds_a_second_grant(self) -> None:
        self.events[7][1]["granted"] = {"id": "b", "fence": 3}
        self.assertIn("b was granted again", self.findings())

    def test_it_finds_a_grant_out_of_turn(self) -> None:
        self.events[5][1]["granted"]["id"] = "c"
        self.assertIn("c was granted before b", self.findings())

    def test_it_finds_an_expiry_caused_by_downtime(self) -> None:
        self.events[7][0]["ended"]["t"] = 6500
        self.assertIn("b expired 500 ms before", self.findings())

    def test_it_finds_answers_without_a_record(self) -> None:
        self.notes.append(self.note("reserve", "d", None, 201, 7, state="granted", fence=4))
        self.notes.append(self.note("release", "c", 3, 200, 7, state="ended", end="released"))
        self.notes.append(self.note("look", "b", None, 200, 6, state="granted", fence=9))
        self.notes.append(self.note("look", "a", None, 404, 6, code="not-found"))
        self.notes.append(self.note("release", "c", 3, 409, 7, code="stale-fence"))
        self.notes.append(self.note("limit", "red", 7, 200, 7))
        for found in (
            "reserve d was answered 201 as of record 7 (granted), but no such record",
            "release c was answered 200 as of record 7 (ended, released); the export says None",
            "with fence 9; the export says 2",
            "look a was answered 404 as of record 6 (not-found), but it was recorded",
            "(stale-fence), but the holder had the right fence",
            "limit red was answered 200 as of record 7 with 7 slots; the export says 1",
        ):
            self.assertIn(found, self.findings())

    def test_it_finds_records_without_a_request_and_fences_reported_twice(self) -> None:
        self.notes = [note for note in self.notes if note.name != "c"]
        self.notes.append(self.note("look", "x", None, None, -1, state="granted", fence=1))
        self.assertIn("c is in the export, but no client requested it", self.findings())
        self.assertIn("fence 1 was reported for x and for a", self.findings())

    def test_it_finds_a_fence_that_was_issued_again_after_a_restore(self) -> None:
        self.notes.append(self.note("reserve", "lost", None, 201, 9, state="granted", fence=3))
        self.events[6].append({"restored": {"generation": 1}})
        self.assertIn("c got fence 3 after restore 1, although 3 was reported before", self.findings())

    def test_it_finds_gaps_and_time_that_goes_back(self) -> None:
        records: List[Dict[str, Any]] = [{"seq": 0, "t": 5, "ev": []}, {"seq": 2, "t": 4, "ev": []}]
        found = "\n".join(oracle.judge_records(records, []).findings)
        self.assertIn("the sequence has a gap", found)
        self.assertIn("time went back", found)


class Books(unittest.TestCase):
    """The second bookkeeper finds each broken sum in the history of one run."""

    def setUp(self) -> None:
        self.envelope: Dict[str, Any] = {"name": "g", "concurrency": 8, "maxGPUHours": 1}
        self.cap: Dict[str, Any] = {"name": "all", "envelopes": ["a/q/g"], "maxConcurrency": 8}
        self.claim = {"envelope": "a/q/g", "pool": "own", "gpus": 4}
        self.closed = {"meter": "a/q/g", "epoch": 0, "accruedGpuMs": money.HOUR_MS}
        #: End of the run: 4 GPUs have used a GPU-hour.
        self.end = money.HOUR_MS // 4

    def findings(self) -> str:
        """Findings in the present history."""
        of = {"of": {"uid": "r"}}
        budget = {"namespace": "a", "name": "q", "envelopes": [self.envelope]}
        above = {"namespace": "org", "name": "q", "aggregateCaps": [self.cap]}
        pods = [{"pod": 0, "node": "n", "gpus": [[0, 3]]}]
        begin = [
            {"nodeSet": {"name": "n", "gpus": 8}},
            {"budgetSet": budget},
            {"budgetSet": above},
            {"runSubmitted": {"uid": "r", "run": {"namespace": "a", "name": "r"}}},
            {"runFunded": {**of, "claims": [self.claim], "cause": "take"}},
            {"leasesOpened": {**of, "pods": pods}},
        ]
        end = [{"leasesClosed": {**of, "gpus": 4}}, {"runEnded": {**of, "reason": "Completed"}}]
        books = money.Books()
        books.record({"seq": 0, "t": 0, "ev": begin})
        books.record({"seq": 1, "t": self.end, "ev": end})
        books.record({"seq": 2, "t": self.end + 1, "ev": [{"epochClosed": {"epoch": self.closed}}]})
        return "\n".join(books.findings)

    def test_a_good_history_has_no_findings(self) -> None:
        self.assertEqual(self.findings(), "")

    def test_it_finds_a_claim_that_overdraws_and_goes(self) -> None:
        self.end += 1
        self.closed["accruedGpuMs"] = money.HOUR_MS + 4
        self.assertIn("a/q/g has used 3600004 GPU-ms of 3600000", self.findings())

    def test_it_finds_an_overdrawn_cap_and_an_overdrawn_pool(self) -> None:
        self.envelope = {**self.envelope, "maxGPUHours": 2, "lending": {"maxGPUHours": 1}}
        self.cap["maxGPUHours"] = 1
        self.claim["pool"] = "lent"
        self.end += 1
        self.assertIn("cap/org/q/all has used 3600004 GPU-ms", self.findings())
        self.assertIn("lending/a/q/g has used 3600004 GPU-ms", self.findings())

    def test_it_finds_more_gpus_than_a_limit(self) -> None:
        self.envelope = {**self.envelope, "concurrency": 3, "lending": {"maxConcurrency": 2}}
        self.cap["maxConcurrency"] = 1
        self.claim["pool"] = "lent"
        for found in ("a/q/g pays for 4 of 3", "lending/a/q/g pays for 4 of 2", "all pays for 4 of 1"):
            self.assertIn(found, self.findings())

    def test_it_finds_a_closed_epoch_with_another_sum(self) -> None:
        self.closed["accruedGpuMs"] = money.HOUR_MS - 1
        self.assertIn("a/q/g closed at 3599999, the sum is 3600000", self.findings())
