"""``make bench-scale``."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from apiserver.client.config import Config
from apiserver.client.rest import Client
from benchmarks.api import machine
from benchmarks.scale import nodes, report
from benchmarks.scale.cluster import Cluster, cluster
from benchmarks.scale.course import IDLE_SECONDS, Course
from benchmarks.scale.report import STEPS
from tests.reference_server.programs import ProgramFailed
from tests.testbed.progress import StepFailed

SIZES: Final = (1_000, 5_000, 20_000)
PER_NODE: Final = 10
RENEW: Final = 10
"""As kubelets and virt-handlers do."""
CONNECTIONS: Final = 600
"""More than a drain's evictions at once."""


class Results:
    """The runs so far, in the file ``output``."""

    def __init__(self, about: dict[str, Any], output: Path) -> None:
        self._about, self._output = about, output
        self.runs: list[dict[str, Any]] = []

    def write(self) -> None:
        """Write the file, also after an unfinished run."""
        self._output.parent.mkdir(parents=True, exist_ok=True)
        self._output.write_text(json.dumps({"machine": self._about, "runs": self.runs}, indent=1) + "\n")


async def measure(started: Cluster, run: dict[str, Any], results: Results, idle_seconds: float, steps: Sequence[str]) -> None:
    groups = nodes.Groups.of(run["nodes"], -(-run["machines"] // run["nodes"]))
    config = Config.load(str(started.kubeconfig()))
    async with Client(config, user_agent="bench-scale", max_connections=CONNECTIONS) as client:
        progress(f"{run['nodes']} nodes")
        await nodes.start(started, client, groups, progress)
        course = Course(started, client, groups, run["machines"], idle_seconds, steps, run, progress)

        def finished(step: str) -> None:
            run["load"] = round(os.getloadavg()[0], 1)
            results.write()
            progress(f"{run['machines']} machines: {step}, {run[step]['seconds']} s")

        await course.run(finished)


@contextmanager
def directory(parent: Path | None, size: int) -> Iterator[Path]:
    """Yield ``parent/size``, which must not exist; without ``parent`` a directory that the end of the block deletes."""
    if parent is not None:
        (parent / str(size)).mkdir(parents=True)
        yield parent / str(size)
        return
    with tempfile.TemporaryDirectory(prefix="bench-scale-") as made:
        yield Path(made)


def progress(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


def main() -> None:
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    parser = argparse.ArgumentParser(prog="make bench-scale", description="Measure the control plane with simulated nodes and machines.")
    parser.add_argument("--sizes", default=" ".join(map(str, SIZES)), help="numbers of machines, one run each (default: %(default)s)")
    parser.add_argument("--per-node", type=int, default=PER_NODE, help="machines per node (default: %(default)s)")
    parser.add_argument(
        "--renew", type=int, default=RENEW, help="seconds between renewals of a Lease; losses are seen as much later (default: %(default)s)"
    )
    parser.add_argument("--steps", default=",".join(STEPS), help="steps of each run (default: %(default)s)")
    parser.add_argument("--idle", type=float, default=IDLE_SECONDS, help="seconds of the idle measurement (default: %(default)s)")
    parser.add_argument("--directory", type=Path, help="new directory for logs and data, which stay; default: a temporary one")
    parser.add_argument("--output", type=Path, default=Path("build/bench/scale.json"), help="where the JSON goes")
    given = parser.parse_args()
    steps = given.steps.split(",")
    if unknown := set(steps) - set(STEPS):
        parser.error(f"unknown steps: {', '.join(sorted(unknown))}")
    try:
        python = machine.interpreter()
        results = Results(machine.describe("", python), given.output)
        for size in map(int, given.sizes.split()):
            run: dict[str, Any] = {"machines": size, "nodes": max(2, size // given.per_node), "renew": given.renew}
            results.runs.append(run)
            with directory(given.directory, size) as chosen, cluster(chosen, python, given.renew) as started:
                asyncio.run(measure(started, run, results, given.idle, steps))
    except (ProgramFailed, StepFailed) as error:
        sys.exit(str(error))
    print(report.table(results.runs), end="")


if __name__ == "__main__":
    main()
