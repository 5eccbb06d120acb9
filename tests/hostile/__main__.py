"""Hostile tests: attacks that the real program must withstand.

`python3 tests/hostile` runs all of them against the program whose path is in `BURSAR_BIN`. Every random
choice follows from the seed that is printed first; `--seed N` repeats the choices, not the timing.
"""

from __future__ import annotations

import argparse
import secrets
import signal
import sys
import time
import unittest

import rig

#: The files with tests, in the order in which they run.
FILES = ["oracle_checks", "forgeries", "tenants", "streams", "losses", "kills", "money"]
#: Time limit of all tests. Three minutes are enough; a busy machine gets twice that.
BUDGET_SECONDS = 360.0


class Budget(unittest.TextTestResult):
    """A result that fails the running test when the time limit is reached, and starts no other."""

    seconds = BUDGET_SECONDS

    def startTestRun(self) -> None:
        """Starts the clock."""
        super().startTestRun()
        signal.signal(signal.SIGALRM, self.spent)
        signal.setitimer(signal.ITIMER_REAL, self.seconds)

    def stopTestRun(self) -> None:
        """Stops the clock."""
        signal.setitimer(signal.ITIMER_REAL, 0)
        super().stopTestRun()

    def spent(self, *_: object) -> None:
        """Fails the running test."""
        self.stop()
        raise AssertionError(f"the hostile tests took more than their budget of {self.seconds:.0f} s")


def main() -> None:
    """Runs the chosen tests, and exits as unittest does."""
    parser = argparse.ArgumentParser(prog="tests/hostile", description=__doc__)
    parser.add_argument("--seed", type=int, help="seed of every random choice")
    seconds = rig.Options.seconds
    parser.add_argument("--seconds", type=float, default=seconds, help="duration of the kills")
    which = f"tests: {', '.join(FILES)}, or FILE.CLASS.TEST; default all"
    budget = "time limit in seconds; a longer duration of the kills is added"
    parser.add_argument("--budget", type=float, default=BUDGET_SECONDS, help=budget)
    parser.add_argument("tests", nargs="*", default=FILES, help=which)
    chosen = parser.parse_args()
    rig.Options.seed = secrets.randbelow(1 << 32) if chosen.seed is None else chosen.seed
    rig.Options.seconds = chosen.seconds
    seed = rig.Options.seed
    print(f"seed {seed}: `python3 tests/hostile --seed {seed}` makes the same choices", flush=True)
    Budget.seconds = chosen.budget + max(0.0, chosen.seconds - seconds)
    tests = unittest.defaultTestLoader.loadTestsFromNames(chosen.tests)
    runner = unittest.TextTestRunner(stream=sys.stdout, verbosity=2, resultclass=Budget)
    began = time.monotonic()
    result = runner.run(tests)
    print(f"{time.monotonic() - began:.0f} s of {Budget.seconds:.0f} s")
    sys.exit(not result.wasSuccessful())


if __name__ == "__main__":
    main()
