"""``make bench-migrate``: successive live migrations of a guest with a client behind a Service (docs/performance.md).

The guest counts on its console and answers HTTP. Bytes, rate and downtime are from ``status.progress``; processor time of virt-handlers is
that beyond their idle rate.
"""

from __future__ import annotations

import copy
import itertools
import re
import statistics
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from benchmarks import gauges
from benchmarks.gauges import MIB, PROMPT, START_SECONDS
from tests.cluster import processes
from tests.cluster.kube import Kubectl, console, eventually
from tests.cluster.manifests import linux_vm, migration
from tests.cluster.serving import a_service, address_of, serve
from tests.cluster.test_testbed import a_pod

NAME: Final = "moves"
CLIENT: Final = "asks"
WORD: Final = "from-the-guest"
RELAY: Final = "relays import program"
"""Part of a relay process's command line (handler/relays/process.py)."""
GIB: Final = 1 << 30
PATIENCE_SECONDS: Final = 600
IDLE_SECONDS: Final = 20
SETTLED_ANSWERS: Final = 20
"""Consecutive answers after a migration that end its client attempts."""
HANGING_SECONDS: Final = 8
"""Time after a migration's end until a hanging attempt ends."""
ASK: Final = (
    'ask() { if said=$(fetch "http://$ADDRESS/" 2>&1); then echo "answered: $said"; else echo "failed: $said"; fi; }; '
    "while true; do ask & sleep 0.1; done"
)
COUNT: Final = "(i=0; while :; do i=$((i+1)); echo tick $i; sleep 1; done) & "


@dataclass(frozen=True)
class Attempt:
    """One connection of the client to the guest's Service."""

    ended: datetime
    failure: str = ""
    """The client's message; empty: it was answered."""


@dataclass(frozen=True)
class Move:
    """One ended migration, as measured."""

    phase: str
    seconds: float
    phases: Mapping[str, float]
    progress: Mapping[str, Any]
    """``status.progress`` at its end."""
    handler_seconds: float
    """Processor time of both virt-handlers beyond the idle rate, including relays."""
    relay_seconds: float
    """Processor time of the relays of both nodes."""
    attempts: Sequence[Attempt] = field(default=())
    """From ``create`` until the client got answers again."""


def attempts_in(log: str) -> Iterator[Attempt]:
    for line in log.splitlines():
        time_, _, said = line.partition(" ")
        kind, _, words = said.partition(":")
        words = words.strip()
        if kind == "failed":
            yield Attempt(datetime.fromisoformat(time_), words or "nothing was said")
        elif kind == "answered":
            yield Attempt(datetime.fromisoformat(time_), "" if words == WORD else f"another answer: {words[:100]}")


def phase_seconds(status: Mapping[str, Any]) -> dict[str, float]:
    stamps = [(each["phase"], datetime.fromisoformat(each["time"])) for each in status["phaseTransitionTimestamps"]]
    return {phase: (after - at).total_seconds() for (phase, at), (_, after) in itertools.pairwise(stamps)}


def settled(attempts: Sequence[Attempt], end: datetime) -> Sequence[Attempt]:
    """Return the client's attempts up to ``SETTLED_ANSWERS`` consecutive answers from ``HANGING_SECONDS`` after ``end`` on; else none."""
    after = [number for number, each in enumerate(attempts) if (each.ended - end).total_seconds() >= HANGING_SECONDS]
    row = 0
    for number in after:
        row = 0 if attempts[number].failure else row + 1
        if row == SETTLED_ANSWERS:
            return attempts[: number + 1]
    return ()


def longest_gap(attempts: Sequence[Attempt]) -> float:
    answered = [each.ended for each in attempts if not each.failure]
    return max(((after - before).total_seconds() for before, after in itertools.pairwise(answered)), default=0.0)


def machine(memory_mib: int) -> dict[str, Any]:
    manifest = copy.deepcopy(linux_vm(NAME))
    manifest["metadata"]["labels"] = {"app": NAME}
    manifest["spec"]["domain"]["memory"]["guest"] = f"{memory_mib}Mi"
    manifest["spec"]["domain"]["devices"]["graphics"] = []
    return manifest


def handlers(kubectl: Kubectl) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = kubectl.within("kubevirt").json("get", "pods", "-l", "kubevirt.io=virt-handler")["items"]
    return found


def processor_seconds(pods: Sequence[dict[str, Any]]) -> float:
    return sum(processor_seconds_of(pid for pod in pods for pid in processes.of_pod(pod)).values())


def relays(pods: Sequence[dict[str, Any]]) -> dict[int, float]:
    return processor_seconds_of(pid for pod in pods for pid, command in processes.of_pod(pod).items() if RELAY in command)


def processor_seconds_of(pids: Iterable[int]) -> dict[int, float]:
    found = {}
    for pid in pids:
        with suppress(OSError):  # its parent has its time
            found[pid] = processes.processor_seconds(pid)
    return found


def taken(before: Mapping[int, float], latest: Mapping[int, float]) -> float:
    """Return the processor seconds used between two samples by pid; new processes count from zero."""
    return sum(seconds - before.get(pid, 0.0) for pid, seconds in latest.items())


def log_of(kubectl: Kubectl, *arguments: str) -> str:
    return kubectl("logs", CLIENT, "--timestamps", *arguments, timeout=120)


@contextmanager
def ready(kubectl: Kubectl, memory_mib: int, fill_mib: int) -> Iterator[None]:
    kubectl.apply(a_service(NAME, NAME), machine(memory_mib))
    kubectl("wait", "vm", NAME, "--for=condition=Ready", f"--timeout={START_SECONDS}s", timeout=START_SECONDS + 10)
    with console(kubectl, NAME) as guest:
        guest.expect(PROMPT, timeout=START_SECONDS)
        serve(guest, WORD)
        guest.run(f"dd if=/dev/urandom of=/filled bs=1M count={fill_mib} 2>/dev/null", timeout=START_SECONDS)
        guest.type(f"{COUNT}\n")
        before = int(guest.expect(r"tick (\d+)").group(1))
    client = a_pod(CLIENT, "sh", "-c", ASK, restart="Always")
    client["spec"]["containers"][0]["env"] = [{"name": "ADDRESS", "value": kubectl.json("get", "service", NAME)["spec"]["clusterIP"]}]
    kubectl.create(client)
    address_of(kubectl, CLIENT)
    eventually(lambda: [each.failure for each in attempts_in(log_of(kubectl, "--tail=5"))] == [""] * 5, timeout=120, what="five answers")
    yield
    with console(kubectl, NAME) as guest:
        ticks = [int(guest.expect(r"tick (\d+)\r?\n", timeout=60).group(1)) for _ in range(3)]
    if ticks[0] <= before or ticks != list(range(ticks[0], ticks[0] + 3)):
        raise gauges.NotMeasured(f"the guest counted to {before} before, and then {ticks}: it began anew")


def move(kubectl: Kubectl, idle_rate: float) -> Move:
    """Migrate the guest once; return the measured move. ``idle_rate``: idle virt-handlers' processor seconds per second."""
    pods = handlers(kubectl)
    before, relays_before, began = processor_seconds(pods), relays(pods), time.monotonic()
    relays_latest = dict(relays_before)
    name = kubectl.create(migration(NAME))["metadata"]["name"]

    def ended() -> dict[str, Any] | None:
        relays_latest.update(relays(pods))  # the source's relays end with the migration
        found: dict[str, Any] = kubectl.json("get", "migration", name).get("status") or {}
        return found if found.get("phase") in ("Succeeded", "Failed", "Cancelled") else None

    status = eventually(ended, timeout=PATIENCE_SECONDS, what=f"the end of migration {name}")
    spent = processor_seconds(pods) - before - idle_rate * (time.monotonic() - began)
    created, end = (datetime.fromisoformat(each) for each in (status.get("startTime") or status["endTime"], status["endTime"]))
    attempts = eventually(
        lambda: settled([each for each in attempts_in(log_of(kubectl, "--since=300s")) if each.ended >= created], end),
        timeout=PATIENCE_SECONDS,
        what="answers after the migration",
    )
    found = Move(
        phase=status["phase"],
        seconds=(end - created).total_seconds(),
        phases=phase_seconds(status),
        progress=status.get("progress") or {},
        handler_seconds=spent,
        relay_seconds=taken(relays_before, relays_latest),
        attempts=attempts,
    )
    print(f"  {told(found)}", file=sys.stderr)
    return found


def told(found: Move) -> str:
    failed = Counter(kind_of(each) for each in found.attempts if each.failure)
    what = ", ".join(f"{count} {kind}" for kind, count in failed.items()) or "none"
    running, gap = found.phases.get("Running", 0.0), longest_gap(found.attempts)
    told_of_client = f"{len(found.attempts)} attempts, longest gap {gap:.1f} s, failed: {what}"
    rate = mib_per_second(found.progress)
    moving = f"moving {running:.1f} s{f' at {rate:.1f} MiB/s' if rate is not None else ''}"
    return f"{found.phase}, {found.seconds:.1f} s, {moving}; {told_of_client}"


def mib_per_second(progress: Mapping[str, Any]) -> float | None:
    moved, milliseconds = int(progress.get("processedBytes") or 0), int(progress.get("elapsedMilliseconds") or 0)
    return moved / MIB / (milliseconds / 1000) if moved and milliseconds else None


def kind_of(attempt: Attempt) -> str:
    return re.sub(r"\(?[0-9a-f.:\[\]]*[.:][0-9a-f.:\[\]]+\)?:? ?", "", attempt.failure.rpartition(": ")[2] or attempt.failure).strip()


def idle(kubectl: Kubectl) -> float:
    pods = handlers(kubectl)
    before = processor_seconds(pods)
    time.sleep(IDLE_SECONDS)
    return (processor_seconds(pods) - before) / IDLE_SECONDS


def quartiles(values: Sequence[float]) -> dict[str, float]:
    ordered = sorted(values)
    return {
        "median": round(statistics.median(ordered), 2),
        "p95": round(ordered[min(len(ordered) - 1, int(len(ordered) * 0.95))], 2),
        "max": round(ordered[-1], 2),
    }


def report(moves: Sequence[Move], ran: str, memory_mib: int) -> dict[str, Any]:
    good = [each for each in moves if each.phase == "Succeeded"]
    bytes_ = [int(each.progress.get("processedBytes") or 0) for each in good]
    downtimes = [float(each.progress["downtimeMilliseconds"]) for each in good if each.progress.get("downtimeMilliseconds") is not None]
    rates = [rate for each in good if (rate := mib_per_second(each.progress)) is not None]
    attempts = [each for one in moves for each in one.attempts]
    processors = {"virt_handlers": [each.handler_seconds for each in good], "relays": [each.relay_seconds for each in good]}
    figures: dict[str, Any] = {
        "acceleration": ran,
        "memory_mib": memory_mib,
        "migrations": dict(Counter(each.phase for each in moves)),
        "seconds": quartiles([each.seconds for each in good]),
        "seconds_in_phase": {
            phase: quartiles([each.phases[phase] for each in good if phase in each.phases])
            for phase in dict.fromkeys(phase for each in good for phase in each.phases)
        },
        "client": {
            "attempts": len(attempts),
            "failed": dict(Counter(kind_of(each) for each in attempts if each.failure)),
            "longest_gap_seconds": quartiles([longest_gap(each.attempts) for each in moves]),
        },
        **{name: {"cpu_seconds_per_migration": quartiles(each)} for name, each in processors.items()},
    }
    if rates:
        figures["mib_per_second"] = quartiles(rates)
    if sum(bytes_):
        figures["moved_mib"] = quartiles([each / MIB for each in bytes_])
        for name, each in processors.items():
            figures[name]["cpu_seconds_per_gib"] = round(sum(each) / (sum(bytes_) / GIB), 2)
    if downtimes:
        figures["downtime_ms"] = quartiles(downtimes)
    return figures


def main() -> None:
    parser = gauges.parser("Measure live migrations of a guest behind a Service, on the test cluster.", "migrate")
    parser.add_argument("--count", type=int, default=50, help="how many migrations (default 50)")
    parser.add_argument("--memory", type=int, default=256, help="the guest's memory in MiB (default 256)")
    parser.add_argument("--fill", type=int, default=128, help="MiB of it that random bytes fill (default 128)")
    arguments = parser.parse_args()
    kubectl = Kubectl(Path(arguments.kubeconfig), arguments.namespace)
    with gauges.namespace(kubectl), ready(kubectl, arguments.memory, arguments.fill):
        ran, rate = gauges.acceleration(kubectl, NAME), idle(kubectl)
        moves = [move(kubectl, rate) for _ in range(arguments.count)]
    gauges.write(arguments.output, report(moves, ran, arguments.memory))


if __name__ == "__main__":
    main()
