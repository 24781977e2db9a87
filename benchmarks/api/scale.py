"""``make bench-api-scale``: the effect of many objects and many watchers on the servers.

- growth: processor time for one write and one read, with 1,000, 10,000 and 100,000 objects
- many objects: time until ready after a restart, memory, whole lists, pages, lists by selector
- many watchers: memory and processor time, and delays of events, at a fixed rate of writes
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from benchmarks.api import machine
from benchmarks.api.bench import VARIANTS
from benchmarks.api.loading import SampleFailed
from benchmarks.api.operations import Operation
from benchmarks.api.rounds import Bench, Contestant, prepared, progress
from tests.cluster import processes
from tests.reference_server.programs import ProgramFailed
from tests.testbed.progress import StepFailed

SHARDS: Final = 100
RATE: Final = 5.0
WRITES: Final = (
    Operation("patch", "patch", namespace="bench"),
    Operation("create", "create", namespace="create", names="c"),
    Operation("get", "get", namespace="bench"),
)


@dataclass
class Scale:
    """One run: rows of (what, server, figures)."""

    bench: Bench
    rows: list[tuple[str, str, dict[str, Any]]] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)

    def note(self, what: str, contestant: Contestant, figures: dict[str, Any]) -> None:
        """Store and print figures of a contestant, in row ``what``."""
        self.rows.append((what, contestant.name, figures))
        shown = "  ".join(f"{key} {value}" for key, value in figures.items())
        print(f"{what:28}{contestant.name:9}{shown}", flush=True)

    def ask(self, what: str, contestant: Contestant, operation: Operation, *more: str) -> dict[str, Any] | None:
        """Run an operation against a contestant; return the sample, or None after recording a failure."""
        progress(f"{what} {contestant.name}")
        try:
            return self.bench.ask(contestant, operation, *more)
        except SampleFailed as error:
            self.failures.append(f"{what} at {contestant.name}: {error}"[:400])
            print(self.failures[-1], file=sys.stderr)
            return None

    def growth(self, steps: list[int]) -> None:
        """Create objects up to each number of ``steps``, and measure reads and writes at each."""
        made = 0
        for count in steps:
            for each in self.bench.contestants:
                names = "o" if not made else f"o{count}-"
                namespace = "bench" if not made else "many"
                seeding = Operation("seed", "seed", namespace=namespace, names=names, objects=count - made)
                sample = self.ask(f"seed {count - made}", each, seeding)
                if sample:
                    figures = {"per_second": round(sample["count"] / sample["seconds"]), **_cost(sample)}
                    self.note(f"seed {count - made}", each, figures)
            made = count
            for operation in WRITES:
                for each in self.bench.contestants:
                    more = ["-cpu=1", "-seconds=1"] + ([f"-names=c{count}"] if operation.verb == "create" else [])
                    if sample := self.ask(operation.key, each, operation, *more):
                        self.note(f"{operation.key} with {count}", each, {**_cost(sample), "p99_us": round(sample["p99_us"])})

    def restart(self, count: int) -> None:
        """Restart each contestant with ``count`` objects; note the seconds until it is ready, and its memory."""
        for each in self.bench.contestants:
            each.server.end()
            ready = each.server.start()
            self.bench.first_list(each, Operation("list", "list", namespace="many", objects=0, connections=1, query="limit=1"))
            time.sleep(5)
            self.note(
                f"restart with {count}", each, {"ready_seconds": round(ready, 2), "rss_mib": processes.resident_kib(each.server.pid) >> 10}
            )

    def lists(self, steps: list[int]) -> None:
        """Measure lists with limits and selectors. Namespace ``many`` has all objects except those of the first step and the creates."""
        count, many = steps[-1], steps[-1] - steps[0]
        one = f"o{steps[1]}--00007" if len(steps) > 1 else "absent"
        kinds = {
            "whole list": ("", many),
            "page of 500": ("limit=500", min(500, many)),
            "label, one in a hundred": ("labelSelector=bench.example.com/shard%3D07", many // SHARDS),
            "label, rv=0": ("labelSelector=bench.example.com/shard%3D07&resourceVersion=0", many // SHARDS),
            "field metadata.name": (f"fieldSelector=metadata.name%3D{one}", min(many, 1)),
            "label, none": ("labelSelector=bench.example.com/shard%3Dabsent", 0),
        }
        for what, (query, expected) in kinds.items():
            for each in self.bench.contestants:
                operation = Operation("list", "list", namespace="many", objects=expected, connections=1, query=query)
                if sample := self.ask(what, each, operation, "-cpu=0.3", "-seconds=0.3", "-longest=20"):
                    figures = {**_cost(sample), "p50_ms": round(sample["p50_us"] / 1e3, 1), "bytes": sample["bytes_per_answer"]}
                    self.note(f"{what} of {count}", each, figures)
        for each in self.bench.contestants:
            self.note("memory after lists", each, {"rss_mib": processes.resident_kib(each.server.pid) >> 10})

    def watchers(self, count: int) -> None:
        """Measure ``RATE`` writes per second with ``count`` watchers."""
        for each in self.bench.contestants:
            before = processes.resident_kib(each.server.pid)
            operation = Operation("watch", "watch", namespace="watch", connections=2, rate=RATE, watchers=count)
            if sample := self.ask(f"{count} watchers", each, operation, "-cpu=1", "-seconds=10"):
                figures = {
                    "cpu_us_per_delivery": round(sample["cpu_seconds"]["server"] * 1e6 / sample["deliveries"], 1),
                    "p50_ms": round(sample["delivery_p50_us"] / 1e3, 1),
                    "p99_ms": round(sample["delivery_p99_us"] / 1e3, 1),
                    "rss_mib_before": before >> 10,
                    "rss_mib_after": processes.resident_kib(each.server.pid) >> 10,
                }
                self.note(f"{count} watchers, {RATE:g} writes/s", each, figures)


def _cost(sample: dict[str, Any]) -> dict[str, float]:
    return {"cpu_us": round(sample["cpu_seconds"]["server"] * 1e6 / max(sample["count"], 1), 1)}


def main() -> None:
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    parser = argparse.ArgumentParser(prog="make bench-api-scale", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--objects", type=int, default=100_000, help="how many at most (default 100,000; 0: no growth)")
    parser.add_argument("--watchers", type=int, default=2_000, help="how many (default 2,000; 0: none)")
    parser.add_argument("--servers", default="reference,ours", help=f"which of {', '.join(VARIANTS)}")
    parser.add_argument("--revision", default="", help="measure our server as of this commit; default: the files as they are")
    parser.add_argument("--output", type=Path, default=Path("build/bench/api-scale.json"), help="where the JSON goes")
    given = parser.parse_args()
    try:
        python = machine.interpreter()
    except StepFailed as error:
        sys.exit(str(error))
    about = machine.describe(given.revision, python)
    print(f"revision {about['revision']}, {about['time']}, Python {about['python']}, load {about['load_at_start']}", flush=True)
    steps = [count for count in (1_000, 10_000, 100_000) if count < given.objects] + ([given.objects] if given.objects else [])
    try:
        chosen = [VARIANTS[name] for name in given.servers.split(",")]
        with prepared(chosen, rounds=1, quick=True, python=python, revision=given.revision) as (_, bench):
            scale = Scale(bench)
            bench.seed("watch", "o", 64)
            if given.watchers:
                scale.watchers(given.watchers)
            if steps:
                scale.growth(steps)
                scale.restart(given.objects)
                scale.lists(steps)
    except (ProgramFailed, StepFailed, SampleFailed) as error:
        sys.exit(str(error))
    about["load_at_end"] = round(os.getloadavg()[0], 2)
    given.output.parent.mkdir(parents=True, exist_ok=True)
    rows = [{"what": what, "server": server, **figures} for what, server, figures in scale.rows]
    given.output.write_text(json.dumps({"machine": about, "rows": rows, "failures": scale.failures}, indent=1) + "\n")


if __name__ == "__main__":
    main()
