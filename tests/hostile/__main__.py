"""Hostile tests: attacks on the real program, which it must withstand.

`python3 tests/hostile` runs all of them against the program whose path is in `BURSAR_BIN`. Every random
choice follows from the seed that is printed first; `--seed N` repeats the choices, not the timing.
"""

from __future__ import annotations

import argparse
import secrets
import sys
import unittest

import rig

#: The files with tests, in the order in which they run.
FILES = ["oracle_checks", "forgeries", "tenants", "streams", "losses", "kills"]


def main() -> None:
    """Runs the chosen tests, and exits as unittest does."""
    parser = argparse.ArgumentParser(prog="tests/hostile", description=__doc__)
    parser.add_argument("--seed", type=int, help="what every random choice follows from")
    seconds = rig.Options.seconds
    parser.add_argument("--seconds", type=float, default=seconds, help="how long the kills go on")
    which = f"which: {', '.join(FILES)}, or FILE.CLASS.TEST; all unless told"
    parser.add_argument("tests", nargs="*", default=FILES, help=which)
    chosen = parser.parse_args()
    rig.Options.seed = secrets.randbelow(1 << 32) if chosen.seed is None else chosen.seed
    rig.Options.seconds = chosen.seconds
    seed = rig.Options.seed
    print(f"seed {seed}: `python3 tests/hostile --seed {seed}` makes the same choices", flush=True)
    tests = unittest.defaultTestLoader.loadTestsFromNames(chosen.tests)
    result = unittest.TextTestRunner(stream=sys.stdout, verbosity=2).run(tests)
    sys.exit(not result.wasSuccessful())


if __name__ == "__main__":
    main()
