"""Cuts, steps and expected results: rows, columns and cases of docs/faults.md."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType
from typing import Final, Literal

Operation = Literal["migration", "drain", "upgrade", "loss"]
OPERATIONS: Final[tuple[Operation, ...]] = ("migration", "drain", "upgrade", "loss")

OFF_SECONDS: Final = 12.0
KUBELET_SECONDS: Final = 8.0
"""A kubelet's absence; in production its supervisor restarts it."""

LOSS_SECONDS: Final = 75.0
"""A lost node's absence: a fence agent proves after 60 s that the node is off."""
STOPPED_SECONDS: Final = 120.0

END_SECONDS: Final = 240.0
"""To the end of a Migration, drain or upgrade; longer ones count as hung."""


@dataclass(frozen=True, slots=True)
class Cut:
    name: str
    what: str


@dataclass(frozen=True, slots=True)
class Step:
    operation: Operation
    name: str
    when: str
    """The condition at the cut, and how it is ensured."""


class Expected(Enum):
    MOVES = "it moves"
    MOVES_OR_STAYS = "it moves, or the Migration fails and it stays"
    RESTARTS = "the cut may end the guest itself, which restarts from its disk"
    ELSEWHERE = "the guest restarts on another node, before its node returns"
    STAYS = "the guest runs on, and no node is fenced"


@dataclass(frozen=True, slots=True)
class Case:
    cut: Cut
    step: Step
    expected: Expected

    @property
    def name(self) -> str:
        return f"{self.step.operation}.{self.cut.name}.{self.step.name}"

    @property
    def is_undisturbed(self) -> bool:
        """Return whether nothing is cut: clients may then only see the documented interruption."""
        return self.cut.name == NOTHING


NOTHING: Final = "nothing"
CUTS: Final = (
    Cut(NOTHING, "no cut"),
    Cut("handler-source", "virt-handler, with its relays: SIGKILL"),
    Cut("handler-target", "virt-handler, with its relays: SIGKILL"),
    Cut("relay-source", "the relay process: SIGKILL"),
    Cut("relay-target", "the relay process: SIGKILL"),
    Cut("libvirtd-source", "libvirtd: SIGKILL"),
    Cut("libvirtd-target", "libvirtd: SIGKILL"),
    Cut("launcher-target", "virt-launcher, and so its pod: SIGKILL"),
    Cut("qemu-target", "QEMU: SIGKILL"),
    Cut("pod-target", "the target's pod is deleted"),
    Cut("controller", "the leading virt-controller: SIGKILL"),
    Cut("api", "virt-api, all replicas: SIGKILL"),
    Cut("etcd", "etcd's only member: SIGKILL"),
    Cut("kubelet-source", f"the kubelet: SIGKILL, restarted after {KUBELET_SECONDS:.0f} s"),
    Cut("kubelet-target", f"the kubelet: SIGKILL, restarted after {KUBELET_SECONDS:.0f} s"),
    Cut("nodes-apart", f"the nodes do not reach each other for {OFF_SECONDS:.0f} s; both reach kube-apiserver"),
    Cut("source-off", f"no network for {OFF_SECONDS:.0f} s"),
    Cut("target-off", f"no network for {OFF_SECONDS:.0f} s"),
    Cut("power", "the kubelet, virt-handler and all guests of the node: SIGKILL"),
    Cut("off", "the node has no network"),
    Cut("from-api", "the node and kube-apiserver do not reach each other"),
    Cut("sends-nothing", "packets from the node are lost"),
    Cut("hears-nothing", "packets to the node are lost"),
    Cut("all", "the node has no network, and virt-api does not reach etcd"),
    Cut("frozen", "all processes of the node: SIGSTOP, later SIGCONT"),
    Cut("from-peers", "the nodes do not reach each other; both reach kube-apiserver"),
    Cut("from-storage", "the node does not reach the iSCSI target with the guest's disk"),
    Cut("etcd-from-api", "virt-api does not reach etcd"),
    Cut("established", "packets of the node's connections from before the cut are lost"),
    Cut("handler-stopped", f"virt-handler: SIGSTOP, SIGCONT after {STOPPED_SECONDS:.0f} s"),
    Cut("clock-jumps", "virt-handler's Lease has times an hour ahead or behind, by turns"),
)

STEPS: Final = (
    Step(
        "migration",
        "Pending",
        "the Migration exists; both virt-controllers are stopped (SIGSTOP)",
    ),
    Step("migration", "Scheduling", "the target pod is unscheduled; the target is cordoned"),
    Step("migration", "PreparingTarget", "the target's virt-handler prepares the pod, and is stopped"),
    Step("migration", "TargetReady", "the target expects bytes; the source's virt-handler is stopped"),
    Step("migration", "Running", "memory moves, slowed by a MigrationPolicy; 2 MiB have left the source"),
    Step(
        "migration",
        "assignment",
        "QEMU has left the source, and the guest is paused at the target; the source's virt-handler is stopped",
    ),
    Step("migration", "Succeeded", "the test has just seen the phase"),
    Step("drain", "first", "kubectl drain runs, the first Migration exists and no guest has moved"),
    Step("drain", "middle", "one of the two guests has moved; the other is slowed"),
    Step("drain", "last", "the last guest has just moved, and kubectl drain still runs"),
    Step(
        "upgrade",
        "begin",
        "virt-api, virt-controller and virt-handler are restarted while a guest's memory moves",
    ),
    Step("upgrade", "middle", "the first virt-handler has been replaced"),
    Step("loss", "no-proof", "the fence agent gets no answer from the board"),
    Step("loss", "agent", "the fence agent's board switches the node off when it is asked"),
    Step("loss", "person", "a person calls `kubectl virt fence` once the machine is Unknown"),
    Step("loss", "guardian", "no fence agent; each node has a guardian, and a third voter runs elsewhere"),
    Step("loss", "starting", "the machine's pod was just assigned to the node; with a fence agent"),
    Step("loss", "source", "a live migration's memory moves away from the node; with a fence agent"),
    Step("loss", "target", "a live migration's memory moves to the node; with a fence agent"),
)

_OF_MIGRATIONS: Final = tuple(each.name for each in STEPS if each.operation == "migration")
_EVERYWHERE: Final = tuple((each.operation, each.name) for each in STEPS if each.operation != "loss")


def _at(*steps: str, operation: Operation = "migration") -> tuple[tuple[str, str], ...]:
    return tuple((operation, each) for each in steps)


_DRAIN: Final = _at("first", "middle", "last", operation="drain")
_UPGRADE: Final = _at("begin", "middle", operation="upgrade")
_WITH_TARGET: Final = _at("PreparingTarget", "TargetReady", "Running", "assignment", "Succeeded")

APPLIES: Final[Mapping[str, tuple[tuple[str, str], ...]]] = MappingProxyType(
    {
        NOTHING: _at("Running", "assignment") + _at("first", operation="drain") + _at("begin", operation="upgrade"),
        "handler-source": _EVERYWHERE,
        "handler-target": _EVERYWHERE,
        "relay-source": _at("Running", "assignment"),
        "relay-target": _at("Running", "assignment"),
        "libvirtd-source": _at("Pending", "Scheduling", "PreparingTarget", "TargetReady", "Running"),
        "libvirtd-target": _WITH_TARGET,
        "launcher-target": _WITH_TARGET,
        "qemu-target": _at("Running", "assignment", "Succeeded"),
        "pod-target": _at("Scheduling") + _WITH_TARGET,
        "controller": _EVERYWHERE,
        "api": _EVERYWHERE,
        "etcd": _EVERYWHERE,
        "kubelet-source": _at(*_OF_MIGRATIONS) + _at("middle", operation="drain"),
        "kubelet-target": _at(*_OF_MIGRATIONS) + _at("middle", operation="drain"),
        "nodes-apart": _at(*_OF_MIGRATIONS) + _at("middle", operation="drain"),
        "source-off": _at("Running", "assignment") + _at("middle", operation="drain"),
        "target-off": _at("Running", "assignment") + _at("middle", operation="drain"),
        "power": _at("no-proof", "agent", "person", "guardian", "starting", "source", "target", operation="loss"),
        "off": _at("no-proof", "agent", "guardian", "starting", "source", "target", operation="loss"),
        "from-api": _at("no-proof", "agent", "guardian", operation="loss"),
        "sends-nothing": _at("no-proof", "agent", "guardian", operation="loss"),
        "hears-nothing": _at("no-proof", "agent", "guardian", operation="loss"),
        "all": _at("no-proof", "agent", "guardian", operation="loss"),
        "frozen": _at("no-proof", "agent", operation="loss"),
        "from-peers": _at("agent", "guardian", operation="loss"),
        "from-storage": _at("agent", "guardian", operation="loss"),
        "etcd-from-api": _at("agent", "guardian", operation="loss"),
        "established": _at("agent", "guardian", operation="loss"),
        "handler-stopped": _at("agent", "guardian", operation="loss"),
        "clock-jumps": _at("agent", "guardian", operation="loss"),
    }
)
"""Steps at which a cut makes sense: its process has started."""

WORST: Final = (
    "migration.nothing.Running",
    "migration.handler-source.Running",
    "migration.handler-target.assignment",
    "migration.nodes-apart.assignment",
    "migration.qemu-target.assignment",
    "migration.etcd.Running",
    "migration.api.Running",
    "migration.controller.Running",
    "migration.libvirtd-source.Running",
    "migration.libvirtd-target.Running",
    "loss.off.no-proof",
    "loss.off.agent",
)
"""The cases of ``make test``. The first one cuts nothing, which sets the strictest limits."""

_ENDS_THE_GUEST: Final = frozenset({"launcher-target", "qemu-target", "pod-target"})
_UNREACHABLE: Final = frozenset({"power", "off", "from-api", "sends-nothing", "hears-nothing", "all", "frozen"})
"""The node's kubelet and virt-handler cannot report."""
_MAY_FAIL_THE_MOVE: Final = _ENDS_THE_GUEST | {"nodes-apart", "source-off", "target-off"}
"""Cuts of the target or the way to it. Any other component restarts, and the migration continues or gets another attempt."""


def expected(cut: str, step: Step) -> Expected:
    if step.operation == "loss":
        return _expected_of_loss(cut, step.name)
    if step.name in ("assignment", "Succeeded") and cut in _ENDS_THE_GUEST:
        return Expected.RESTARTS
    if cut in _MAY_FAIL_THE_MOVE:
        return Expected.MOVES_OR_STAYS
    return Expected.MOVES


def _expected_of_loss(cut: str, step: str) -> Expected:
    if step == "target":
        return Expected.MOVES_OR_STAYS
    if step == "no-proof":
        return Expected.RESTARTS if cut == "power" else Expected.STAYS
    if cut == "all":  # without etcd no machine can restart elsewhere before the loss is over
        return Expected.RESTARTS
    return Expected.ELSEWHERE if cut in _UNREACHABLE else Expected.STAYS


def cases() -> Iterator[Case]:
    for operation in OPERATIONS:
        for cut in CUTS:
            for step in steps(operation):
                if (operation, step.name) in APPLIES[cut.name]:
                    yield Case(cut, step, expected(cut.name, step))


def steps(operation: Operation) -> list[Step]:
    return [each for each in STEPS if each.operation == operation]


def cuts(operation: Operation) -> list[Cut]:
    return [each for each in CUTS if any(where == operation for where, _ in APPLIES[each.name])]


def chosen(patterns: str) -> list[Case]:
    words = patterns.split()
    for word in words:
        if not any(word in each.name for each in cases()):
            raise ValueError(f"no case has {word!r} in its name; cases: {' '.join(each.name for each in cases())}")
    return [each for each in cases() if not words or any(word in each.name for word in words)]
