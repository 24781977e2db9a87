"""``make bench-api`` measures the reference server, the same with GOGC=400, and ours in turn (docs/performance.md).

With ``--through-aggregator``, kube-apiserver proxies the requests.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from benchmarks.api import machine, operations, report
from benchmarks.api.loading import SampleFailed
from benchmarks.api.operations import MEMORY, OPERATIONS, VARIED
from benchmarks.api.rounds import Bench, prepared
from tests.reference_server import servers
from tests.reference_server.environment import GROUP, Environment
from tests.reference_server.programs import ProgramFailed
from tests.reference_server.servers import Variant
from tests.testbed.progress import StepFailed

VARIANTS: Final = {
    each.name: each for each in (servers.REFERENCE_DEFAULT, servers.REFERENCE_TUNED, servers.OURS_FLUNDERS, servers.OURS_MACHINES)
}
AGGREGATED: Final = ("get", "get_rv0", "list_1k", "create", "update", "patch", "apply", "watch_saturated")


def run(bench: Bench, wanted: Sequence[str]) -> None:
    for namespace, names, count in (("bench", "o", operations.BASE), ("watch", "o", operations.ASKED)):
        bench.seed(namespace, names, count)
    chosen = [each for each in (*OPERATIONS, *VARIED) if each.key in wanted]
    for operation in (each for each in chosen if not each.many):
        bench.measure(operation)
    if any(each.many for each in chosen) or MEMORY.key in wanted:
        bench.seed("many", "m", operations.MANY)
    for operation in (each for each in chosen if each.many):
        bench.measure(operation)
    if MEMORY.key in wanted:
        bench.memory()


def aggregate(here: Environment, bench: Bench) -> None:
    """Make kube-apiserver the proxy of every contestant, under its variant's API group; requests then go there."""
    for each in bench.contestants:
        here.aggregate(each.name, each.server.port, group=each.server.variant.group)
        each.port = here.kubernetes_port


def variants(names: Sequence[str], *, aggregated: bool) -> list[Variant]:
    chosen = [VARIANTS[name] for name in names]
    if aggregated:
        chosen = [replace(each, group=f"ours.{GROUP}") if each is servers.OURS_FLUNDERS else each for each in chosen]
    return chosen


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make bench-api", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ops", help="operations, separated by commas (default: all; quick: all but varied ones)")
    parser.add_argument("--servers", help=f"which of {', '.join(VARIANTS)} (default: reference,reference400,ours)")
    parser.add_argument("--kind", choices=["flunder", "vm"], default="flunder", help="vm: our VirtualMachine is measured as well")
    parser.add_argument("--quick", action="store_true", help="fewer and shorter samples: under four minutes")
    parser.add_argument("--rounds", type=int, help="samples of each operation and server (default 3; quick: 2)")
    parser.add_argument("--revision", default="", help="measure our server as of this commit; default: the files as they are")
    parser.add_argument("--python", default="", help="what our server runs on; needs its packages (default: that of virt-api's image)")
    parser.add_argument("--through-aggregator", action="store_true", help="ask kube-apiserver, which asks the servers")
    parser.add_argument("--output", type=Path, help="where the JSON goes (default build/bench/api.json, or api-aggregated.json)")
    given = parser.parse_args()
    usual = AGGREGATED if given.through_aggregator else operations.QUICK if given.quick else operations.KEYS
    given.ops = given.ops.split(",") if given.ops else list(usual)
    if unknown := sorted(set(given.ops) - set(operations.KEYS)):
        parser.error(f"no operation is called {', '.join(unknown)}; there are {', '.join(operations.KEYS)}")
    names = given.servers or ("reference,ours" if given.through_aggregator else "reference,reference400,ours")
    given.servers = names.split(",") + (["vms"] if given.kind == "vm" else [])
    given.rounds = given.rounds or (2 if given.quick else 3)
    given.output = given.output or Path("build/bench") / ("api-aggregated.json" if given.through_aggregator else "api.json")
    return given


def measured(given: argparse.Namespace) -> dict[str, Any]:
    python = machine.interpreter(given.python)
    about = machine.describe(given.revision, python)
    chosen = variants(given.servers, aggregated=given.through_aggregator)
    with prepared(chosen, rounds=given.rounds, quick=given.quick, python=python, revision=given.revision) as (here, bench):
        if given.through_aggregator:
            aggregate(here, bench)
        run(bench, given.ops)
        last = bench.contestants[-1]
        about["features"] = {"managedFields": last.has_managed_fields()}
        about["varied"] = list(servers.VARIED.flags)
        about["asked"] = "kube-apiserver, which asks the servers" if given.through_aggregator else "the servers directly"
        about["load_at_end"] = round(os.getloadavg()[0], 2)
        return {"machine": about, "samples": bench.samples, "failures": bench.failures}


def main() -> None:
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    given = parse()
    try:
        finished = report.finish(measured(given), through_aggregator=given.through_aggregator)
    except (ProgramFailed, StepFailed, SampleFailed) as error:
        sys.exit(str(error))
    print(report.table(finished))
    given.output.parent.mkdir(parents=True, exist_ok=True)
    given.output.write_text(report.encode(finished))


if __name__ == "__main__":
    main()
