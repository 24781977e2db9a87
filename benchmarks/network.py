"""``make bench-network``: throughput and connections of a guest and of a container on its node (docs/performance.md).

``gauge`` runs in both, and on another node.
"""

from __future__ import annotations

import copy
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

from benchmarks import gauges
from benchmarks.gauges import NotMeasured, Reading, Run
from tests.cluster.kube import Kubectl, console
from tests.cluster.manifests import linux_vm

CONTAINER: Final = "container"
PORT: Final = 5300
WAYS: Final[Mapping[str, Mapping[str, Any]]] = {"masquerade": {}, "bridge": {}, "passt": {"ports": [{"port": PORT}]}}
JOBS: Final = 4
PATIENCE_SECONDS: Final = 60.0
ADDRESS_SECONDS: Final = 60.0

Found = TypeVar("Found")
Readings = dict[str, dict[str, list[Reading]]]

FIGURES: Final[Mapping[str, tuple[str, str]]] = {
    "sent": ("here", "send {address} {port} {seconds}"),
    "received": ("here", "receive {address} {port} {seconds}"),
    "connections out": ("here", "connect {address} {port} {jobs} {seconds}"),
    "connections in": ("peer", "connect {address} {port} {jobs} {seconds}"),
}
"""The initiating side, and the arguments of ``gauge``."""


def words(figure: str, address: str, seconds: int) -> str:
    return FIGURES[figure][1].format(address=address, port=PORT, jobs=JOBS, seconds=seconds)


def machine(name: str, way: str, node: str) -> dict[str, Any]:
    manifest = copy.deepcopy(linux_vm(name))
    manifest["spec"]["domain"]["devices"] |= {"graphics": [], "interfaces": [{"name": "default", "type": way, **WAYS.get(way, {})}]}
    manifest["spec"]["nodeSelector"] = {"kubernetes.io/hostname": node}
    return manifest


def soon(look: Callable[[], Found], seconds: float) -> Found:
    """Return ``look()``, retried every second for ``seconds`` while it raises NotMeasured, as before a new guest has an address."""
    until = time.monotonic() + seconds
    while True:
        try:
            return look()
        except NotMeasured:
            if time.monotonic() > until:
                raise
            time.sleep(1)


def run_all(way: str, here: Run, peer: Run, addresses: tuple[str, str], seconds: int, found: Readings) -> None:
    mine, theirs = addresses
    for run, address in ((here, theirs), (peer, mine)):  # wait until both directions work
        soon(partial(run, f"connect {address} {PORT} 1 1", PATIENCE_SECONDS), ADDRESS_SECONDS)
    for figure, (begins, _) in FIGURES.items():
        run, address = (here, theirs) if begins == "here" else (peer, mine)
        read = run(words(figure, address, seconds), seconds + PATIENCE_SECONDS)
        found.setdefault(way, {}).setdefault(figure, []).append(read)
        print(f"  {way}: {figure}: {told(figure, read)}", file=sys.stderr)


def told(figure: str, read: Reading) -> str:
    return f"{read.per_second:.0f}/s" if figure.startswith("connections") else f"{read.mib_per_second:.1f} MiB/s"


def address_of(kubectl: Kubectl, pod: str) -> str:
    kubectl("wait", "pod", pod, "--for=condition=Ready", "--timeout=120s", timeout=130)
    return str(kubectl.json("get", "pod", pod)["status"]["podIP"])


def in_machine(kubectl: Kubectl, way: str, node: str, peer: str, seconds: int, found: Readings) -> str:
    """Start a machine, :func:`run_all` in its guest, and delete it; return ``kvm`` or ``emulation``. Raises NotMeasured."""
    name = f"gauged-{way}"
    with gauges.started(kubectl, machine(name, way, node)) as vm, console(kubectl, name) as guest:
        guest.run(f"(gauge serve {PORT} >/dev/null 2>&1 &)")
        addresses = (str(vm["status"]["podIP"]), peer)
        run_all(way, gauges.in_guest(guest), gauges.in_pod(kubectl, "peer"), addresses, seconds, found)
        return gauges.acceleration(kubectl, name)


def measure(kubectl: Kubectl, ways: Sequence[str], rounds: int, seconds: int) -> tuple[Readings, str]:
    first, *others = gauges.nodes(kubectl)
    kubectl.create(gauges.a_pod("peer", "/bin/gauge", "serve", str(PORT), node=others[0] if others else first))
    kubectl.create(gauges.a_pod("container", "/bin/gauge", "serve", str(PORT), node=first))
    peer, container = address_of(kubectl, "peer"), address_of(kubectl, "container")
    found: Readings = {}
    ran = ""
    for _ in range(rounds):
        both = gauges.in_pod(kubectl, "container"), gauges.in_pod(kubectl, "peer")
        run_all(CONTAINER, *both, (container, peer), seconds, found)
        for way in ways:
            ran = in_machine(kubectl, way, first, peer, seconds, found)
    return found, ran


def figure_of(figure: str, readings: list[Reading]) -> float:
    return gauges.median([each.per_second if figure.startswith("connections") else each.mib_per_second for each in readings])


def report(found: Readings, ran: str, seconds: int) -> dict[str, Any]:
    units = {figure: "per second" if figure.startswith("connections") else "MiB per second" for figure in FIGURES}
    ways: dict[str, Any] = {}
    for way, readings in found.items():
        ways[way] = {
            figure: {
                "median": figure_of(figure, each),
                **(
                    {}
                    if way == CONTAINER
                    else {"ratio": gauges.ratio(figure_of(figure, each), figure_of(figure, found[CONTAINER][figure]))}
                ),
            }
            for figure, each in readings.items()
        }
    rounds = len(found[CONTAINER]["sent"])
    return {"acceleration": ran, "rounds": rounds, "seconds_each": seconds, "jobs_of_connections": JOBS, "units": units, "ways": ways}


def main() -> None:
    parser = gauges.parser("Measure guests in the pod's network beside a container, on the test cluster.", "network")
    parser.add_argument("--ways", default=",".join(WAYS), help=f"types of the interface, separated by commas (default {','.join(WAYS)})")
    parser.add_argument("--rounds", type=int, default=3, help="how often each is measured (default 3)")
    parser.add_argument("--seconds", type=int, default=5, help="how long each run takes (default 5)")
    arguments = parser.parse_args()
    kubectl = Kubectl(Path(arguments.kubeconfig), arguments.namespace)
    with gauges.namespace(kubectl):
        found, ran = measure(kubectl, arguments.ways.split(","), arguments.rounds, arguments.seconds)
    gauges.write(arguments.output, report(found, ran, arguments.seconds))


if __name__ == "__main__":
    main()
