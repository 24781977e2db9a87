"""Takes samples of operations from several servers in turn."""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from benchmarks.api import machine, payloads, varied
from benchmarks.api.loading import Generator, SampleFailed
from benchmarks.api.operations import DELETE, MEMORY, OPERATIONS, Operation
from benchmarks.api.payloads import Kind
from tests.cluster import processes
from tests.reference_server import environment, servers
from tests.reference_server.certificates import ADMIN, USER
from tests.reference_server.environment import Environment
from tests.reference_server.servers import Server, Variant

SETTLE_SECONDS: Final = 4.0
CACHE_SECONDS: Final = 60.0
REVIEWS: Final = "apiserver_delegated_authz_request_total"


@dataclass
class Contestant:
    """A server, and the requests to it."""

    server: Server
    kind: Kind
    port: int = 0
    """Port of requests, for example kube-apiserver's; 0: the server's own."""
    introduced: str = ""
    """The verb with cached reviews for the varied users."""

    @property
    def name(self) -> str:
        """Return the name of the server's variant."""
        return self.server.variant.name

    def reviews(self) -> int:
        """Return the number of SubjectAccessReviews that the server has sent."""
        page = self.server.here.call("GET", "/metrics", port=self.server.port)[1].decode()
        return sum(int(float(line.split()[-1])) for line in page.splitlines() if line.startswith(f"{REVIEWS}{{"))

    def has_managed_fields(self) -> bool:
        """Return whether the server tracks field owners, from object ``o-00000``, which must exist."""
        path = self.kind.collection("bench") + "/o-00000"
        return "managedFields" in self.server.here.call("GET", path, port=self.server.port)[1]["metadata"]


@dataclass
class Bench:
    """One run: samples and failures by operation, then by contestant."""

    contestants: list[Contestant]
    generator: Generator
    rounds: int
    quick: bool
    samples: dict[str, dict[str, list[dict[str, Any]]]] = field(default_factory=dict)
    failures: dict[str, dict[str, str]] = field(default_factory=dict)

    def ask(self, contestant: Contestant, operation: Operation, *more: str, user: str = USER) -> dict[str, Any]:
        """Run an operation against a contestant; return the sample. ``more``: the generator's further flags. Raises SampleFailed."""
        return self.generator.run(contestant.server, contestant.kind, operation, *more, user=user, port=contestant.port)

    def note(self, key: str, name: str, sample: dict[str, Any]) -> None:
        """Store a contestant's sample of operation ``key``, with the machine's load."""
        self.samples.setdefault(key, {}).setdefault(name, []).append({**sample, "load": round(os.getloadavg()[0], 2)})

    def seed(self, namespace: str, names: str, count: int) -> None:
        """Create ``count`` objects, with names that begin with ``names``, at every contestant."""
        for each in self.contestants:
            operation = Operation("seed", "seed", namespace=namespace, names=names, objects=count)
            self.generator.run(each.server, each.kind, operation, user=ADMIN)
            progress(f"{count} objects at {each.name}")

    def measure(self, operation: Operation) -> None:
        """Take and store ``rounds`` samples of an operation from each contestant, in turn."""
        self.ready(operation)
        for number in range(self.rounds):
            order = self.contestants if number % 2 == 0 else self.contestants[::-1]
            for each in order:
                self.sample(operation, each)

    def ready(self, operation: Operation) -> None:
        """Restart contestants that run with other settings than the operation needs; for a varied one, :meth:`introduce` users."""
        for each in self.contestants:
            if each.server.use(servers.VARIED if operation.varied else servers.ORDINARY):
                each.introduced = ""
            if operation.varied:
                self.introduce(each, operation)

    def introduce(self, contestant: Contestant, operation: Operation) -> None:
        """Make the server cache the reviews of all users by a request for each object, unless done. Records a failure."""
        verb = "patch" if operation.verb == "watch" else operation.verb  # watchers also write
        if verb == contestant.introduced:
            return
        lines = varied.write(contestant.server.here.directory, "introductions", varied.introductions())
        once = replace(operation, verb=verb, connections=Operation.connections)
        try:
            # The reference server is ready before it has read the front proxy's authorities.
            self.insist("system:anonymous", contestant, once, f"-requests={lines}", "-once")
            contestant.introduced = verb
        except SampleFailed as error:
            self.fail(operation, contestant, error)
        progress(f"introduced users to {contestant.name}")

    def fail(self, operation: Operation, contestant: Contestant, error: SampleFailed) -> None:
        """Record and print a failure; later rounds of the operation skip this contestant."""
        self.failures.setdefault(operation.key, {})[contestant.name] = str(error)
        print(f"  {operation.key} at {contestant.name} failed: {error}", file=sys.stderr)

    def sample(self, operation: Operation, contestant: Contestant) -> None:
        """Take and store one sample; after a create, also one of the deletion. Does nothing after a failure at this contestant."""
        if contestant.name in self.failures.get(operation.key, {}):
            return
        cpu = operation.quick_cpu if self.quick else operation.cpu
        seconds = 1.0 if self.quick else 2.0
        if operation.verb == "create":  # the collector may hold the previous objects
            operation = replace(operation, names=f"c{self.taken(operation, contestant)}")
        bounds = (f"-cpu={cpu}", f"-seconds={seconds}")
        try:
            sample = self.vary(contestant, operation, *bounds) if operation.varied else self.ask(contestant, operation, *bounds)
            self.note(operation.key, contestant.name, sample)
            if operation.verb == "create":
                taken = replace(DELETE, names=operation.names, objects=sample["highest"])
                self.note("delete", contestant.name, self.ask(contestant, taken, user=ADMIN))  # each name would need a review
        except SampleFailed as error:
            self.fail(operation, contestant, error)
        progress(f"{operation.key} {contestant.name}")

    def taken(self, operation: Operation, contestant: Contestant) -> int:
        """Return the number of stored samples of an operation from a contestant."""
        return len(self.samples.get(operation.key, {}).get(contestant.name, []))

    def vary(self, contestant: Contestant, operation: Operation, *more: str) -> dict[str, Any]:
        """Run a varied operation; return its sample with ``reviewed``: SubjectAccessReviews per request, except for watches."""
        seed = f"{operation.key}-{self.taken(operation, contestant)}"
        lines = varied.write(contestant.server.here.directory, seed, varied.requests(seed))
        before = contestant.reviews()
        sample = self.ask(contestant, operation, f"-requests={lines}", *more)
        if operation.watchers:
            return sample  # watches are opened before the measurement, and each needs a review
        return {**sample, "reviewed": round((contestant.reviews() - before) / (sample["count"] + sample["warm"]), 3)}

    def memory(self, key: str = MEMORY.key, objects: int = 0) -> None:
        """Restart each contestant with its objects; note, as ``key``, its memory at rest and after a list of all ``objects``."""
        self.ready(MEMORY)
        listing = next(each for each in OPERATIONS if each.key == "list_10k")
        listing = replace(listing, connections=1, objects=objects or listing.objects)
        for each in self.contestants:
            each.server.end()
            ready = each.server.start()
            self.first_list(each, replace(listing, objects=0, query="limit=1"))
            time.sleep(SETTLE_SECONDS)
            found = {"ready_seconds": round(ready, 2), "rss_kib": processes.resident_kib(each.server.pid)}
            sample = self.first_list(each, listing)
            found["list_seconds"] = round(sample["p50_us"] / 1e6, 2)
            found["rss_after_list_kib"] = processes.resident_kib(each.server.pid)
            self.note(key, each.name, found)
            progress(f"{key} {each.name}")

    def first_list(self, contestant: Contestant, listing: Operation) -> dict[str, Any]:
        """Return a sample of one list; retry while the reference server, ready before its cache, returns 429."""
        return self.insist("status 429", contestant, listing, "-seconds=0", "-longest=0.01")

    def insist(self, passing: str, contestant: Contestant, operation: Operation, *more: str) -> dict[str, Any]:
        """Return a sample; retry for ``CACHE_SECONDS`` while the error contains ``passing``, as after a start. Else raises SampleFailed."""
        deadline = time.monotonic() + CACHE_SECONDS
        while True:
            try:
                return self.ask(contestant, operation, *more)
            except SampleFailed as error:
                if passing not in str(error) or time.monotonic() > deadline:
                    raise
                time.sleep(0.2)


def progress(text: str) -> None:
    if sys.stderr.isatty():
        print(f"\r\x1b[K  {text}", end="", file=sys.stderr, flush=True)


@contextmanager
def prepared(
    variants: Sequence[Variant], *, rounds: int, quick: bool, python: str, revision: str = ""
) -> Iterator[tuple[Environment, Bench]]:
    """Run etcd, kube-apiserver and the variants' servers during the block; yield the environment and the bench.

    Raises ProgramFailed or StepFailed if a server did not start, or was not built.
    """
    mine, others = machine.split()
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-api-", dir=machine.place())))
        tree = machine.export(revision, directory / "tree", python)
        here = stack.enter_context(environment.environment(directory, others=others))
        bench = Bench([], Generator(others), rounds, quick)
        for variant in variants:
            server = Server(variant, here, mine, tree=tree, python=python)
            stack.callback(server.end)
            server.start()
            kind = payloads.machine() if variant.kind == servers.VMS else payloads.flunder(variant.group)
            bench.contestants.append(Contestant(server, kind))
        yield here, bench
