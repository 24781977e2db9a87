"""Silence of nodes: a node is silent when neither its kubelet nor its virt-handler gives a sign of life.

One of the two is not enough. While virt-handler lives it knows better than anybody what runs on its node, and it writes that; whoever
wrote the opposite because the kubelet is away would be contradicted at once, for ever.

The kubelet's word is the node's Ready condition (Unknown when its heartbeats do not come), virt-handler's the Lease of its node. Clocks
of two nodes are never compared: a Lease holds for its ``leaseDurationSeconds``, and two minutes at most, from when this process saw its
``renewTime`` change, as in leader election. A process that has just begun grants every Lease that much. It loses leadership, and begins
anew, before an API server that was away could make all of them look expired.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from apiserver.apis.core.resources import LEASES
from apiserver.apis.meta import errors
from apiserver.apis.meta.objects import Object, annotations_of, condition, dig, name_of
from apiserver.apis.virt import contract
from apiserver.apis.virt.places import names
from apiserver.client.informer import Informer
from apiserver.client.rest import Client

HOLD_SECONDS: Final = 40.0
"""The time for which a sign of life counts that is no Lease, or one without a duration."""
MAX_HOLD_SECONDS: Final = 120.0
"""The longest time for which a Lease counts, whatever it says: a node that was taken over says years, and is switched off."""
BY_CONTRACT: Final = "contract"
"""Index of Leases: :data:`STRANGER`, of virt-handlers of another contract."""
STRANGER: Final = "stranger"


@dataclass(frozen=True, slots=True)
class Silence:
    """The nodes whose kubelets do not report."""

    whole: frozenset[str] = field(default_factory=frozenset)
    """Nodes whose virt-handler does not report either."""
    of_kubelet: Mapping[str, float] = field(default_factory=dict)
    """Nodes whose virt-handler does: for how many seconds more that is known. No event tells when they have passed."""
    missing: frozenset[str] = field(default_factory=frozenset)
    """Of ``whole``: there is no Node of this name."""


def silence_of(left: Mapping[str, float], *, missing: Collection[str]) -> Silence:
    """Return what is silent.

    Args:
        left: by node whose kubelet does not report: for how many seconds the last sign of its virt-handler counts.
        missing: nodes that there are no Nodes of.
    """
    whole = frozenset(node for node, seconds in left.items() if not seconds)
    return Silence(whole, {node: seconds for node, seconds in left.items() if seconds}, whole & frozenset(missing))


@dataclass(frozen=True, slots=True)
class _Sign:
    renew_time: str
    holds: float
    seen_at: float


class SignsOfLife:
    """The last signs of life of each node's virt-handler. No I/O."""

    def __init__(self, elapsed: Callable[[], float]) -> None:
        """``elapsed`` returns seconds that only grow, since whenever."""
        self._elapsed = elapsed
        self._signs: dict[str, _Sign] = {}
        """By the name of the node's Lease."""

    def lease_seen(self, lease: Object) -> None:
        """Take note of a Lease; only another ``renewTime`` than before is a sign of life."""
        name, renewed = name_of(lease), str(dig(lease, "spec", "renewTime") or "")
        holds = min(float(dig(lease, "spec", "leaseDurationSeconds") or HOLD_SECONDS), MAX_HOLD_SECONDS)
        known = self._signs.get(name)
        if known is None or known.renew_time != renewed:
            self._signs[name] = _Sign(renewed, holds, self._elapsed())
        elif known.holds != holds:
            self._signs[name] = dataclasses.replace(known, holds=holds)

    def lease_gone(self, lease: Object) -> None:
        """Take note that nobody renews it any more."""
        self._signs.pop(name_of(lease), None)

    def heard(self, node: str) -> None:
        """Take note of something else that only virt-handler of this node can have done."""
        if not node:
            return
        name = names.handler_lease(node)
        known = self._signs.get(name) or _Sign("", HOLD_SECONDS, 0.0)
        self._signs[name] = dataclasses.replace(known, seen_at=self._elapsed())

    def left(self, node: str) -> float:
        """Return for how many seconds the last sign still counts; 0 when there is none."""
        sign = self._signs.get(names.handler_lease(node))
        return 0.0 if sign is None else max(0.0, sign.seen_at + sign.holds - self._elapsed())


class NodeReports:
    """Tells which nodes are silent, from the copies of Nodes and Leases that are kept here."""

    def __init__(self, client: Client, nodes: Informer, leases: Informer, namespace: str, elapsed: Callable[[], float]) -> None:
        """``leases`` are those of virt-handlers, in ``namespace``; ``elapsed`` as for :class:`SignsOfLife`."""
        self._client = client
        self._nodes = nodes
        self._leases = leases
        self._namespace = namespace
        self._signs = SignsOfLife(elapsed)
        self._changed: list[Callable[[str], None]] = []
        nodes.subscribe(self._node_changed)
        leases.subscribe(self._lease_changed)

    def subscribe(self, changed: Callable[[str], None]) -> None:
        """Call ``changed(node)`` when a node may have to be judged anew. An expiry is no event: ``Silence.of_kubelet`` says when."""
        self._changed.append(changed)

    def heard(self, node: str) -> None:
        """Take note of what only virt-handler of this node can have written: it may come before the renewal of its Lease."""
        self._signs.heard(node)

    async def silence(self, nodes: Iterable[str]) -> Silence:
        """Return which of these nodes are silent."""
        left = {node: await self._left(node) for node in sorted(set(nodes)) if kubelet_is_silent(self._nodes.get("", node))}
        return silence_of(left, missing={node for node in left if self._nodes.get("", node) is None})

    async def _left(self, node: str) -> float:
        """Return for how many seconds the last sign of virt-handler counts.

        Where it does not any more, by the Lease as the server has it: that decides something, and the copy here may be behind.
        """
        if not self._signs.left(node):
            with suppress(errors.NotFound):
                self._leases.remember(await self._client.get(LEASES, names.handler_lease(node), self._namespace))
        return self._signs.left(node)

    def _node_changed(self, old: Object | None, new: Object | None) -> None:
        if kubelet_is_silent(old) != kubelet_is_silent(new):
            self._notify(name_of(new or old or {}))

    def _lease_changed(self, old: Object | None, new: Object | None) -> None:
        node = name_of(new or old or {}).removeprefix(names.handler_lease(""))
        was = self._signs.left(node)
        if new is not None:
            self._signs.lease_seen(new)
        elif old is not None:
            self._signs.lease_gone(old)
        if bool(was) != bool(self._signs.left(node)) or contract_of(old or {}) != contract_of(new or {}):
            self._notify(node)

    def _notify(self, node: str) -> None:
        for changed in self._changed:
            changed(node)


def kubelet_is_silent(node: Object | None) -> bool:
    """Return whether the kubelet of a node does not report (or the node object is gone)."""
    ready = condition(dig(node, "status", "conditions"), "Ready")
    return ready is None or ready.get("status") == "Unknown"


def contract_of(lease: Object) -> list[str]:
    """Index function for ``BY_CONTRACT``."""
    return [] if contract.is_understood(lease) else [STRANGER]


def strangers(leases: Informer) -> dict[str, str]:
    """Return the nodes whose virt-handlers speak no version of the contract that this process does, and the words for each."""
    found = leases.by_index(BY_CONTRACT, STRANGER)
    return {node: contract.refusal(node, each) for each in found if (node := name_of(each).removeprefix(names.handler_lease("")))}


def trim_lease(lease: Object) -> Object:
    """Return what of a Lease matters here."""
    metadata, spec = lease.get("metadata") or {}, lease.get("spec") or {}
    spoken = annotations_of(lease).get(contract.ANNOTATION)
    return {
        "metadata": {
            **{key: metadata[key] for key in ("name", "namespace", "uid", "resourceVersion") if key in metadata},
            **({"annotations": {contract.ANNOTATION: str(spoken)[: contract.MAX_TEXT + 1]}} if spoken is not None else {}),
        },
        "spec": {key: spec[key] for key in ("renewTime", "leaseDurationSeconds") if key in spec},
    }
