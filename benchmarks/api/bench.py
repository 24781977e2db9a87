"""``python -m benchmarks.api.bench``: the twin, the twin with GOGC=400, and ours in turn, operation by operation.

The server under test has one processor to itself, load generator, etcd and kube-apiserver have the other. All servers run all the time;
a sample is one operation at one of them. Processor time is the server's own (``/proc/PID/stat``, all threads), so a busy machine makes a
sample longer, not dearer; throughput and latency do suffer from it.
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from benchmarks.api import operations, payloads, report
from benchmarks.api.loading import Generator, SampleFailed
from benchmarks.api.operations import DELETE, MEMORY, OPERATIONS, Operation
from benchmarks.api.payloads import Kind
from tests.testbed import layout
from tests.testbed.progress import StepFailed
from tests.twin import environment, servers
from tests.twin.certificates import ADMIN
from tests.twin.programs import ProgramFailed
from tests.twin.servers import Server, Variant

SETTLE_SECONDS: Final = 4.0


@dataclass
class Contestant:
    """A server and what is asked of it."""

    server: Server
    kind: Kind

    @property
    def name(self) -> str:
        """The variant's name."""
        return self.server.variant.name


@dataclass
class Bench:
    """One run."""

    contestants: list[Contestant]
    generator: Generator
    rounds: int
    quick: bool
    samples: dict[str, dict[str, list[dict[str, Any]]]] = field(default_factory=dict)
    """By operation and contestant."""
    failures: dict[str, dict[str, str]] = field(default_factory=dict)

    def note(self, key: str, name: str, sample: dict[str, Any]) -> None:
        """Keep a sample."""
        self.samples.setdefault(key, {}).setdefault(name, []).append({**sample, "load": round(os.getloadavg()[0], 2)})

    def seed(self, namespace: str, names: str, count: int) -> None:
        """Make objects at every contestant."""
        for each in self.contestants:
            operation = Operation("seed", "seed", 0, 0, namespace=namespace, names=names, objects=count)
            self.generator.run(each.server, each.kind, operation, user=ADMIN)

    def measure(self, operation: Operation) -> None:
        """Take all samples of an operation, in turn."""
        for number in range(self.rounds):
            order = self.contestants if number % 2 == 0 else self.contestants[::-1]
            for each in order:
                self.sample(operation, each)

    def sample(self, operation: Operation, contestant: Contestant) -> None:
        """Take one sample; what fails once is not asked again of this contestant."""
        if contestant.name in self.failures.get(operation.key, {}):
            return
        cpu = operation.quick_cpu if self.quick else operation.cpu
        seconds = 1.0 if self.quick else 2.0
        try:
            sample = self.generator.run(contestant.server, contestant.kind, operation, f"-cpu={cpu}", f"-seconds={seconds}")
            self.note(operation.key, contestant.name, sample)
            if operation.verb == "create":
                taken = replace(DELETE, objects=sample["highest"])
                self.note("delete", contestant.name, self.generator.run(contestant.server, contestant.kind, taken))
        except SampleFailed as error:
            self.failures.setdefault(operation.key, {})[contestant.name] = str(error)
            print(f"  {operation.key} at {contestant.name} failed: {error}", file=sys.stderr)
        progress(f"{operation.key} {contestant.name}")

    def memory(self) -> None:
        """Restart each with 10,000 objects, and see how much memory it takes: at rest, and after one whole list."""
        listing = next(each for each in OPERATIONS if each.key == "list_10k")
        for each in self.contestants:
            each.server.end()
            ready = each.server.start()
            time.sleep(SETTLE_SECONDS)
            found = {"ready_seconds": round(ready, 2), "rss_kib": resident_kib(each.server.pid)}
            began = time.monotonic()
            self.generator.run(each.server, each.kind, replace(listing, connections=1), "-seconds=0", "-longest=0.01")
            found["list_seconds"] = round(time.monotonic() - began, 2)
            found["rss_after_list_kib"] = resident_kib(each.server.pid)
            self.note(MEMORY.key, each.name, found)
            progress(f"{MEMORY.key} {each.name}")


def resident_kib(pid: int) -> int:
    """Return the resident memory of a process."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1])
    raise ProcessLookupError(f"process {pid} has no resident memory")


def progress(text: str) -> None:
    """Tell on one line how far it is."""
    if sys.stderr.isatty():
        print(f"\r\x1b[K  {text}", end="", file=sys.stderr, flush=True)


def export(revision: str, directory: Path) -> Path:
    """Return a directory with the sources of a revision, so that nobody's unfinished work is measured."""
    directory.mkdir()
    archive = subprocess.Popen(["git", "archive", revision], stdout=subprocess.PIPE, cwd=layout.REPOSITORY)
    subprocess.run(["tar", "-x"], stdin=archive.stdout, check=True, cwd=directory)
    if archive.wait() != 0:
        raise ProgramFailed(f"there is no revision {revision}")
    return directory


def managed(here: environment.Environment, contestant: Contestant) -> bool:
    """Whether the server tracks who owns which field."""
    path = contestant.kind.collection("bench") + "/o-00000"
    return "managedFields" in here.call("GET", path, port=contestant.server.port)[1]["metadata"]


def machine(revision: str) -> dict[str, Any]:
    """Describe where and when this was measured."""
    model = [line.partition(":")[2].strip() for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
    described = subprocess.run(
        ["git", "describe", "--always", *([revision] if revision else ["--dirty"])],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        check=False,
        cwd=layout.REPOSITORY,
    ).stdout.strip()
    return {
        "processors": os.cpu_count(),
        "model": model[0] if model else platform.machine(),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "revision": described,
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "load_at_start": round(os.getloadavg()[0], 2),
    }


def split() -> tuple[frozenset[int], frozenset[int]]:
    """Return the processor of the server and those of everything else."""
    available = sorted(os.sched_getaffinity(0))
    if len(available) < 2:
        return frozenset(), frozenset()
    return frozenset(available[:1]), frozenset(available[1:2])


def place() -> str | None:
    """Return where data go: memory if there is plenty, so that no disk is measured; None: the usual place."""
    shared = Path("/dev/shm")
    if shared.is_dir() and shutil.disk_usage(shared).free > 6 << 30:
        return str(shared)
    return None


def run(variants: Sequence[Variant], wanted: Sequence[str], *, rounds: int, quick: bool, revision: str = "") -> dict[str, Any]:
    """Measure and return everything.

    Raises:
        ProgramFailed, StepFailed: a server did not start, or the twin could not be built.
    """
    about = machine(revision)
    mine, others = split()
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-api-", dir=place())))
        tree = export(revision, directory / "tree") if revision else layout.REPOSITORY
        here = stack.enter_context(environment.environment(directory, others=others))
        bench = Bench([], Generator(others), rounds, quick)
        for variant in variants:
            server = Server(variant, here, mine, tree=tree)
            stack.callback(server.end)
            server.start()
            kind = payloads.machine() if variant.kind == servers.VMS else payloads.flunder(variant.group)
            bench.contestants.append(Contestant(server, kind))
        for namespace, names, count in (("bench", "o", operations.BASE), ("watch", "o", operations.ASKED)):
            bench.seed(namespace, names, count)
        about["features"] = {"audit": "--audit-log-path" in servers.our_flags(tree), "managedFields": managed(here, bench.contestants[-1])}
        chosen = [each for each in OPERATIONS if each.key in wanted]
        for operation in (each for each in chosen if not each.many):
            bench.measure(operation)
        if any(each.many for each in chosen) or MEMORY.key in wanted:
            bench.seed("many", "m", operations.MANY)
        for operation in (each for each in chosen if each.many):
            bench.measure(operation)
        if MEMORY.key in wanted:
            bench.memory()
        about["load_at_end"] = round(os.getloadavg()[0], 2)
        return {"machine": about, "samples": bench.samples, "failures": bench.failures}


VARIANTS: Final = {each.name: each for each in (servers.TWIN_DEFAULT, servers.TWIN_TUNED, servers.OURS_FLUNDERS, servers.OURS_MACHINES)}


def main() -> None:
    parser = argparse.ArgumentParser(prog="make bench-api", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ops", default=",".join(operations.KEYS), help="operations, separated by commas")
    parser.add_argument("--servers", default="twin,twin400,ours", help=f"which of {', '.join(VARIANTS)}")
    parser.add_argument("--kind", choices=["flunder", "vm"], default="flunder", help="vm: our VirtualMachine is measured as well")
    parser.add_argument("--quick", action="store_true", help="fewer and shorter samples: under four minutes")
    parser.add_argument("--rounds", type=int, help="samples of each operation and server (default 3; quick: 2)")
    parser.add_argument("--revision", default="", help="measure our server as of this commit; default: the files as they are")
    parser.add_argument("--output", type=Path, default=Path("build/bench/api.json"), help="where the JSON goes")
    given = parser.parse_args()
    wanted = given.ops.split(",")
    if unknown := sorted(set(wanted) - set(operations.KEYS)):
        parser.error(f"no operation is called {', '.join(unknown)}; there are {', '.join(operations.KEYS)}")
    chosen = [VARIANTS[name] for name in given.servers.split(",") + (["vms"] if given.kind == "vm" else [])]
    rounds = given.rounds or (2 if given.quick else 3)
    try:
        result = run(chosen, wanted, rounds=rounds, quick=given.quick, revision=given.revision)
    except (ProgramFailed, StepFailed, SampleFailed) as error:
        sys.exit(str(error))
    finished = report.finish(result)
    print(report.table(finished))
    given.output.parent.mkdir(parents=True, exist_ok=True)
    given.output.write_text(report.encode(finished))


if __name__ == "__main__":
    main()
