"""``python -m tests.reference_server.serve FLAG…``: flunders and fischers on our framework.

``--api-group``: both servers need separate groups behind one kube-apiserver.
"""

from __future__ import annotations

import argparse
import gc

import uvloop

from apiserver import logs
from apiserver.server import options, running
from apiserver.server.running import Kinds
from tests.reference_server import flunders


def main() -> None:
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--api-group", default=flunders.GROUP)
    own, rest = parser.parse_known_args()
    given = options.parse(rest)
    logs.configure(given.log_level, given.log_format)
    gc.set_threshold(50_000, 20, 20)
    uvloop.run(running.run(given, lambda _: Kinds(flunders.strategies(own.api_group))))


if __name__ == "__main__":
    main()
