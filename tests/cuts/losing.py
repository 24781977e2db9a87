"""Losses of a node: what is cut, and how the node returns."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from apiserver.apis.meta import errors, times
from apiserver.apis.virt.places import names
from apiserver.client.rest import TransportError
from tests.cluster import processes
from tests.cluster.kube import Kubectl
from tests.testbed import cgroups, layout, nodes, progress
from tests.testbed import processes as programs

ETCD_PORT: Final = 2379
TABLE: Final = "lost"
API: Final = (("ip", layout.CONTROL_PLANE_ADDRESS), ("ip6", layout.CONTROL_PLANE_ADDRESS6))
JUMP: Final = timedelta(hours=1)
JUMP_SECONDS: Final = 1.0


def _chains(rules: Mapping[str, Sequence[str]]) -> str:
    chains = [
        f"chain {hook} {{\ntype filter hook {hook} priority 10\n{chr(10).join(f'{each} drop' for each in found)}\n}}\n"
        for hook, found in rules.items()
    ]
    return f"table inet {TABLE} {{\n{''.join(chains)}}}\n"


def _from_api() -> str:
    sent, heard = [f"{family} daddr {each}" for family, each in API], [f"{family} saddr {each}" for family, each in API]
    return _chains({"output": sent, "input": heard, "forward": [*sent, *heard]})


def _established() -> str:
    """Return nftables rules that drop the connections made before the cut; later ones get a mark and pass."""
    marks = (
        f"chain {name} {{\ntype filter hook {name} priority -140\nct state new ct mark set 7\n}}\n" for name in ("prerouting", "output")
    )
    old = "ct state established ct mark != 7 meta l4proto tcp"
    drops = _chains({each: [f"iifname eth0 {old}", f"oifname eth0 {old}"] for each in ("input", "forward")})
    return f"{drops}table inet {TABLE}-marks {{\n{''.join(marks)}}}\n"


RULES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "from-api": _from_api(),
        "sends-nothing": _chains({each: ["oifname eth0"] for each in ("output", "forward")}),
        "hears-nothing": _chains({each: ["iifname eth0"] for each in ("input", "forward")}),
        "established": _established(),
    }
)
ETCD_FROM_API: Final = _chains({"input": [f"iifname != lo tcp dport {ETCD_PORT}"]})


def from_storage(port: int) -> str:
    return _chains({"forward": [f"tcp dport {port}"]})


class Losses:
    """Disturbs a node during the block of ``lost``, and brings it back at its end."""

    def __init__(self, system: Kubectl, node: layout.Node) -> None:
        self._system = system
        self.node = node
        self.is_off = False

    @contextmanager
    def lost(self, cut: str, storage_port: int) -> Iterator[None]:
        with ExitStack() as cuts:
            cuts.callback(self._return)
            self._cut(cut, cuts, storage_port)
            yield

    def _cut(self, cut: str, cuts: ExitStack, storage_port: int) -> None:
        match cut:
            case "power":
                self.power_off()
            case "off":
                cuts.enter_context(_link(self.node, "state", on="forwarding", off="disabled"))
            case "from-peers":
                for each in layout.NODES:
                    cuts.enter_context(_link(each, "isolated", on="off", off="on"))
            case "all":
                cuts.enter_context(self._etcd_from_api())
                cuts.enter_context(_link(self.node, "state", on="forwarding", off="disabled"))
            case "etcd-from-api":
                cuts.enter_context(self._etcd_from_api())
            case "from-storage":
                cuts.enter_context(_filtered(self.node.namespace, from_storage(storage_port)))
            case "frozen":
                cuts.enter_context(stopped(_processes(self.node)))
            case "handler-stopped":
                cuts.enter_context(stopped(list(processes.of_pod(self._pods("virt-handler")[0]))))
            case "clock-jumps":
                cuts.enter_context(self._jumping())
            case _:
                cuts.enter_context(_filtered(self.node.namespace, RULES[cut]))

    def power_off(self) -> None:
        self.is_off = True
        programs.end([f"{self.node.name}-kubelet"])
        for each in (*self._pods("virt-handler"), *self._pods("virt-guardian"), *self._pods("virt-launcher", everywhere=True)):
            for pid in processes.of_pod(each):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    def _pods(self, component: str, *, everywhere: bool = False) -> list[dict[str, Any]]:
        api = self._system.api.within("") if everywhere else self._system.api
        return api.list("pods", field_selector=f"spec.nodeName={self.node.name}", label_selector=f"kubevirt.io={component}")

    def _return(self) -> None:
        if self.is_off:
            nodes.start_kubelet(self.node)
        self._system.api.ready("node", self.node.name, timeout=180)
        self._system.try_run("virt", "unfence", self.node.name)
        self._system.api.rolled_out("daemonset/virt-handler", "deployment/virt-api", "deployment/virt-controller", timeout=300)
        self.is_off = False

    @contextmanager
    def _etcd_from_api(self) -> Iterator[None]:
        pid = min(processes.of_pod(self._system.api.get("pod", "kubevirt-etcd-0")))
        with _filtered(Path(f"/proc/{pid}/ns/net"), ETCD_FROM_API):
            yield

    @contextmanager
    def _jumping(self) -> Iterator[None]:
        over = threading.Event()
        leases = self._system.api.within(names.node_lease_namespace(self._system.namespace))

        def jump() -> None:
            ahead = True
            while not over.wait(JUMP_SECONDS):
                moment = datetime.now(UTC) + (JUMP if ahead else -JUMP)
                text = times.to_rfc3339_micro(moment)
                with suppress(errors.StatusError, TransportError):
                    leases.patch("lease", names.handler_lease(self.node.name), {"spec": {"renewTime": text}})
                ahead = not ahead

        thread = threading.Thread(target=jump)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()


@contextmanager
def _link(node: layout.Node, setting: str, *, on: str, off: str) -> Iterator[None]:
    progress.run(["bridge", "link", "set", "dev", node.link, setting, off])
    try:
        yield
    finally:
        progress.run(["bridge", "link", "set", "dev", node.link, setting, on])


@contextmanager
def _filtered(namespace: Path, rules: str) -> Iterator[None]:
    enter = ["nsenter", f"--net={namespace}", "--", "nft"]
    subprocess.run([*enter, "-f", "-"], input=rules, text=True, check=True)
    try:
        yield
    finally:
        for each in (TABLE, f"{TABLE}-marks"):
            subprocess.run([*enter, "delete", "table", "inet", each], check=False, stderr=subprocess.DEVNULL)


@contextmanager
def stopped(pids: Sequence[int]) -> Iterator[None]:
    """Send SIGSTOP to processes, and after the block SIGCONT to those that still exist."""
    assert pids, "nothing to stop"
    _signal(pids, signal.SIGSTOP)
    try:
        yield
    finally:
        _signal(pids, signal.SIGCONT)


def _signal(pids: Sequence[int], number: signal.Signals) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def _processes(node: layout.Node) -> list[int]:
    """Return the pids of a node's pods, kubelet and containerd, but not of nsenter, which only waits for these."""
    first = programs.find(f"{node.name}-init")
    assert first, f"{node.name} does not run"
    own = Path(f"/proc/{programs.children(first)[0].pid}/ns/pid").readlink()
    found = {each.pid for each in cgroups.members(node)}
    for directory in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if (directory / "ns" / "pid").readlink() == own:
                found.add(int(directory.name))
    return sorted(found)


def heal() -> None:
    """Undo what an interrupted run left in the nodes' network namespaces."""
    for node in layout.NODES:
        with _filtered(node.namespace, f"table inet {TABLE} {{ }}"):
            pass


def waited(seconds: float, *, until: Callable[[], bool] = lambda: False) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and not until():
        time.sleep(0.5)
