"""Determines unreachable nodes: those where neither the kubelet nor virt-handler reports.

The kubelet's report is the node's Ready condition (Unknown without heartbeats), virt-handler's is the Lease of its node. Clocks of
different nodes are not compared: a Lease is valid for ``leaseDurationSeconds``, at most two minutes, from when this process saw its
``renewTime`` change, as in leader election. A new process grants every Lease that time. Without the API server, the process loses
leadership before all Leases would seem expired.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from apiserver.apis.core.resources import LEASES
from apiserver.apis.meta import errors
from apiserver.apis.meta.objects import Object, annotations_of, dig, name_of
from apiserver.apis.virt import guards, node_protocol
from apiserver.apis.virt.guards import Promise
from apiserver.apis.virt.places import names, node_states
from apiserver.client.informer import Informer
from apiserver.client.rest import Client

HOLD_SECONDS: Final = 40.0
"""For a Lease without a duration, or another sign of life."""
MAX_HOLD_SECONDS: Final = 120.0
"""A compromised node may set a duration of years and then be switched off."""
BY_PROTOCOL: Final = "protocol"
"""Leases of incompatible virt-handlers, by :data:`INCOMPATIBLE`."""
INCOMPATIBLE: Final = "incompatible"


@dataclass(frozen=True, slots=True)
class Unreachable:
    """The nodes with unreachable kubelets: ``whole`` without any report, ``of_kubelet`` while virt-handler's last report counts."""

    whole: frozenset[str] = field(default_factory=frozenset)
    of_kubelet: Mapping[str, float] = field(default_factory=dict)
    """Seconds until the last report of a node's virt-handler expires, which causes no event."""
    missing: frozenset[str] = field(default_factory=frozenset)
    """Of ``whole``, those without a Node object."""
    off: frozenset[str] = field(default_factory=frozenset)
    """Of ``whole``, those without a Node object or with the taint ``out-of-service`` for this boot."""
    fenced_before: frozenset[str] = field(default_factory=frozenset)
    """Of ``whole``, those with that taint for an earlier boot. Kubernetes itself deletes their pods by force."""

    @property
    def fenced(self) -> frozenset[str]:
        """Of ``whole``, those with the taint ``out-of-service`` for this boot."""
        return self.off - self.missing

    def left(self, node: str) -> float | None:
        """Return the seconds until virt-handler's last report expires, 0 if it has; None if the kubelet reports."""
        return 0.0 if node in self.whole else self.of_kubelet.get(node)


def unreachable_of(
    left: Mapping[str, float], *, missing: Collection[str], off: Collection[str] = (), fenced_before: Collection[str] = ()
) -> Unreachable:
    """Return the unreachable nodes; with 0 seconds left, virt-handler is unreachable too.

    ``left`` has the seconds until virt-handler's last report expires, for each node with an unreachable kubelet. ``missing`` nodes have no
    Node object, ``off`` ones the taint ``out-of-service``, ``fenced_before`` ones that taint for an earlier boot.
    """
    whole = frozenset(node for node, seconds in left.items() if not seconds)
    of_kubelet = {node: seconds for node, seconds in left.items() if seconds}
    return Unreachable(whole, of_kubelet, whole & frozenset(missing), whole & frozenset((*missing, *off)), whole & frozenset(fenced_before))


@dataclass(frozen=True, slots=True)
class Census:
    """Numbers of nodes with virt-handler."""

    reporting: int
    unreachable: int


@dataclass(frozen=True, slots=True)
class _Sign:
    renew_time: str
    holds: float
    seen_at: float


class SignsOfLife:
    """The last report of each node's virt-handler. No I/O."""

    def __init__(self, elapsed: Callable[[], float]) -> None:
        self._elapsed = elapsed
        self._signs: dict[str, _Sign] = {}

    def lease_seen(self, lease: Object) -> None:
        """Record a Lease; only a new Lease, or a changed ``renewTime``, is a sign of life."""
        name, renewed = name_of(lease), str(dig(lease, "spec", "renewTime") or "")
        holds = min(float(dig(lease, "spec", "leaseDurationSeconds") or HOLD_SECONDS), MAX_HOLD_SECONDS)
        known = self._signs.get(name)
        if known is None or known.renew_time != renewed:
            self._signs[name] = _Sign(renewed, holds, self._elapsed())
        elif known.holds != holds:
            self._signs[name] = dataclasses.replace(known, holds=holds)

    def lease_gone(self, lease: Object) -> None:
        """Forget the reports of a deleted Lease's node."""
        self._signs.pop(name_of(lease), None)

    def heard(self, node: str) -> None:
        """Record a sign of life of this node's virt-handler that is not its Lease."""
        if not node:
            return
        name = names.handler_lease(node)
        known = self._signs.get(name) or _Sign("", HOLD_SECONDS, 0.0)
        self._signs[name] = dataclasses.replace(known, seen_at=self._elapsed())

    def left(self, node: str) -> float:
        """Return the seconds until virt-handler's last report expires; 0 if it has, or there is none."""
        sign = self._signs.get(names.handler_lease(node))
        return 0.0 if sign is None else max(0.0, sign.seen_at + sign.holds - self._elapsed())


class NodeReports:
    """Determines unreachable nodes by informers."""

    def __init__(
        self,
        client: Client,
        nodes: Informer,
        leases: Informer,
        namespace: str,
        elapsed: Callable[[], float],
        guardians: Informer | None = None,
    ) -> None:
        """``leases`` are those of virt-handlers, ``guardians`` those of guardians, in ``namespace``; ``elapsed``: monotonic seconds."""
        self._client = client
        self._nodes = nodes
        self._leases = leases
        self._namespace = namespace
        self._signs = SignsOfLife(elapsed)
        self._changed: list[Callable[[str], None]] = []
        nodes.subscribe(self._node_changed)
        leases.subscribe(self._lease_changed)
        self._guardians = guardians
        if guardians is not None:
            guardians.subscribe(self._guardian_changed)

    def subscribe(self, changed: Callable[[str], None]) -> None:
        """Call ``changed(node)`` when a node needs another check, except when a report expires (``Unreachable.of_kubelet``)."""
        self._changed.append(changed)

    def heard(self, node: str) -> None:
        """Record a write by this node's virt-handler."""
        self._signs.heard(node)

    def left(self, node: str) -> float:
        """Return :meth:`SignsOfLife.left` of a node."""
        return self._signs.left(node)

    def census(self) -> Census:
        """Return how many nodes report and how many are unreachable, by the informers alone.

        Not counted: fenced nodes, nodes without virt-handler's Lease, and nodes where only the kubelet reports.
        """
        reporting = unreachable = 0
        for lease in self._leases.list():
            node = name_of(lease).removeprefix(names.handler_lease(""))
            found = self._nodes.get("", node)
            if node_states.is_fenced(found):
                continue
            if self._signs.left(node):
                reporting += 1
            elif node_states.kubelet_is_unreachable(found):
                unreachable += 1
        return Census(reporting, unreachable)

    def sealed_pods(self) -> dict[str, frozenset[str]]:
        """Return by node the uids of the pods that the sealed Lease of its guardian lists."""
        return {} if self._guardians is None else guards.sealed_pods(self._guardians.list())

    def promised_pods(self, node: str) -> frozenset[str] | None:
        """Return the uids of the pods that a node's guardian promised to end; None without a promise."""
        promise = self._promise(node)
        return None if promise is None or promise.withdrawn else frozenset(promise.pods)

    def is_virtual(self, node: str) -> bool:
        """Return whether a node's guardian promises nothing because the node may be a virtual machine."""
        promise = self._promise(node)
        return promise is not None and promise.virtual

    def _promise(self, node: str) -> Promise | None:
        found = None if self._guardians is None else self._guardians.get(self._namespace, names.guardian_lease(node))
        return None if found is None else guards.promise_of(found)

    async def unreachable(self, nodes: Iterable[str]) -> Unreachable:
        """Return which of these nodes have unreachable kubelets; read virt-handler's Lease from the server if it seems expired."""
        left = {
            node: await self._left(node) for node in sorted(set(nodes)) if node_states.kubelet_is_unreachable(self._nodes.get("", node))
        }
        found = {node: self._nodes.get("", node) for node in left}
        missing = {node for node, each in found.items() if each is None}
        off = {node for node, each in found.items() if node_states.is_fenced(each)}
        before = {node for node, each in found.items() if node not in off and node_states.has_off_taint(each)}
        return unreachable_of(left, missing=missing, off=off, fenced_before=before)

    async def _left(self, node: str) -> float:
        if not self._signs.left(node):
            with suppress(errors.NotFound):
                self._leases.remember(await self._client.get(LEASES, names.handler_lease(node), self._namespace))
        return self._signs.left(node)

    def _node_changed(self, old: Object | None, new: Object | None) -> None:
        judges = (node_states.kubelet_is_unreachable, node_states.is_fenced, node_states.has_off_taint)
        if any(judge(old) != judge(new) for judge in judges):
            self._notify(name_of(new or old or {}))

    def _lease_changed(self, old: Object | None, new: Object | None) -> None:
        node = name_of(new or old or {}).removeprefix(names.handler_lease(""))
        was = self._signs.left(node)
        if new is not None:
            self._signs.lease_seen(new)
        elif old is not None:
            self._signs.lease_gone(old)
        if bool(was) != bool(self._signs.left(node)) or protocol_of(old or {}) != protocol_of(new or {}):
            self._notify(node)

    def _guardian_changed(self, old: Object | None, new: Object | None) -> None:
        if new is not None and guards.is_sealed(new) and (old is None or not guards.is_sealed(old)):
            self._notify(guards.guardian_of(new))

    def _notify(self, node: str) -> None:
        for changed in self._changed:
            changed(node)


def protocol_of(lease: Object) -> list[str]:
    """Return ``INCOMPATIBLE`` as the key in ``BY_PROTOCOL`` if the Lease has no version in common with virt-controller; else none."""
    return [] if node_protocol.is_understood(lease) else [INCOMPATIBLE]


def incompatible_nodes(leases: Informer) -> dict[str, str]:
    """Return a message for each node, by name, where virt-handler has no version of the node protocol in common with virt-controller."""
    found = leases.by_index(BY_PROTOCOL, INCOMPATIBLE)
    return {node: node_protocol.refusal(node, each) for each in found if (node := name_of(each).removeprefix(names.handler_lease("")))}


def trim_lease(lease: Object) -> Object:
    """Return the fields of a Lease that virt-controller reads."""
    metadata, spec = lease.get("metadata") or {}, lease.get("spec") or {}
    spoken = annotations_of(lease).get(node_protocol.ANNOTATION)
    return {
        "metadata": {
            **{key: metadata[key] for key in ("name", "namespace", "uid", "resourceVersion") if key in metadata},
            **({"annotations": {node_protocol.ANNOTATION: str(spoken)[: node_protocol.MAX_TEXT + 1]}} if spoken is not None else {}),
        },
        "spec": {key: spec[key] for key in ("renewTime", "leaseDurationSeconds") if key in spec},
    }
