"""``python -m tests.faults --seconds 3600 --seed 7`` prints a summary as one JSON object."""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
import tempfile
from pathlib import Path

from tests.faults.scenario import Scenario


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("--seconds", type=float, default=3600)
    parser.add_argument("--seed", type=int, default=1, help="an odd one compacts to the present, without client-go's detector")
    parser.add_argument("--directory", type=Path, help="for data and logs; default: a new one, kept if something is wrong")
    given = parser.parse_args()
    for signal_number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(signal_number, signal.default_int_handler)
    directory = given.directory or Path(tempfile.mkdtemp(prefix="faults-"))
    code = 0
    try:
        print(asyncio.run(Scenario(directory, given.seed).play(given.seconds)))
    except* AssertionError as group:
        for each in group.exceptions:
            print(f"seed {given.seed}: {each}", file=sys.stderr)
        code = 1
    return code


if __name__ == "__main__":
    sys.exit(main())
