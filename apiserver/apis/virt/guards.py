"""The guardian's protocol: its times, and the Lease with a node's promise. Pure.

The guardian of a node promises that the guests there end ``Times.promise`` seconds after it sent its last confirmed renewal.
virt-controller seals a Lease that no longer changes; then all pods that it lists are over. docs/high-availability.md has the argument;
``tests/models/fencing.py`` explores it.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from apiserver.apis.core.resources import LEASES
from apiserver.apis.meta.objects import Object, annotations_of, name_of
from apiserver.apis.virt.places import forms, names

PROMISE_ANNOTATION: Final = f"{names.GROUP}/guardian-promise"
"""On a guardian's Lease: the :class:`Promise`, as JSON."""
SEALED_ANNOTATION: Final = f"{names.GROUP}/guardian-sealed"
"""On a guardian's Lease: when virt-controller sealed it. No renewal that was sent before the seal succeeds."""
BEATS_LEASE: Final = "virt-controller-beats"
BEAT_PREFIX: Final = f"beat.{names.GROUP}/"
"""Annotations of :data:`BEATS_LEASE`: the newest beat of each replica of virt-controller."""
MIN_VOTERS: Final = 3
MAX_VOTERS: Final = 9
MAX_PODS: Final = 2000
MAX_TEXT: Final = 4096
MAX_BEATS: Final = 32
MAX_PROMISE: Final = 200_000


@dataclass(frozen=True, slots=True)
class Times:
    """The guardian protocol's times, in seconds."""

    renew: float = 4.0
    """R: between renewals."""
    request: float = 3.0
    """Limit for a guardian's request."""
    beat: float = 2.0
    """Between virt-controller's beats, which voters echo."""
    read: float = 3.0
    """P: between virt-controller's reads of the Leases."""
    read_limit: float = 2.0
    """Limit for such a read."""
    fresh: float = 15.0
    """F: a voter is fresh if the beat that it echoes is at most so old."""
    cut_off: float = 21.0
    """D: a voter may attest that it is cut off if it sent no renewal that may be written for so long."""
    promise: float = 40.0
    """T: guests end so long after the send of the last confirmed renewal, or of the requests behind the last attestations."""
    kill: float = 2.0
    """K: to end the guests, by the guardian or by virt-launcher."""
    wait: float = 50.0
    """W: how long virt-controller sees an unchanged Lease and fresh voters before it seals."""


DEFAULT: Final = Times()
DRIFT: Final = 1.01
"""Clocks' rates differ by at most one percent."""


def faults(times: Times) -> list[str]:
    """Return why these times are unsafe; empty if they are safe."""
    found = []
    if times.cut_off <= times.fresh + times.read + times.read_limit:
        found.append("cut_off must be greater than fresh + read + read_limit")
    if times.wait < (times.promise + times.kill) * DRIFT + times.read + times.read_limit:
        found.append("wait must be at least (promise + kill) * 1.01 + read + read_limit")
    return found


@dataclass(frozen=True, slots=True)
class Promise:
    """The content of a guardian's Lease."""

    serial: str = ""
    """Identifies this write, so the guardian recognizes it in a later read after no answer."""
    boot: str = ""
    pods: tuple[str, ...] = ()
    """Uids of pods with processes of guests, now or in the last minutes."""
    voters: tuple[str, ...] = ()
    """Names of the guardians that vote."""
    beats: Mapping[str, str] = field(default_factory=dict)
    """virt-controller's beats, read before this renewal was sent."""
    address: str = ""
    """The address (HOST:PORT) that other guardians ask for attestations."""
    certificate: str = ""
    """The guardian's own certificate (PEM), which it uses only for attestations."""
    withdrawn: bool = False
    """The guardian promises nothing; guests run on."""
    virtual: bool = False
    """It promises and attests nothing because its node may be a virtual machine. Its renewals still show that it reports."""


def majority(found: Collection[str], voters: Collection[str]) -> bool:
    """Return whether ``found`` has more than half of the voters; False for fewer than three voters."""
    of = frozenset(voters)
    return len(of) >= MIN_VOTERS and 2 * len(of & frozenset(found)) > len(of)


def guardian_of(lease: Object) -> str:
    """Return the name of the guardian that renews this Lease: its node's; empty for other Leases."""
    prefix, name = names.guardian_lease(""), name_of(lease)
    return name.removeprefix(prefix) if name.startswith(prefix) else ""


def is_sealed(lease: Object) -> bool:
    """Return whether virt-controller sealed this Lease."""
    return SEALED_ANNOTATION in annotations_of(lease)


def promise_of(lease: Object) -> Promise | None:
    """Return a Lease's promise, or None without a valid one. The node may be compromised."""
    text = annotations_of(lease).get(PROMISE_ANNOTATION)
    if not isinstance(text, str) or len(text) > MAX_PROMISE:
        return None
    try:
        given = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return _promise(given) if isinstance(given, dict) else None


def _promise(given: Mapping[str, Any]) -> Promise | None:
    words = {key: given.get(key, "") for key in ("serial", "boot", "address", "certificate")}
    pods, voters, beats = given.get("pods", []), given.get("voters", []), given.get("beats", {})
    if not _are_texts(words.values()) or not isinstance(pods, list) or not isinstance(voters, list) or not isinstance(beats, dict):
        return None
    if len(pods) > MAX_PODS or len(voters) > MAX_VOTERS or len(beats) > MAX_BEATS:
        return None
    if not _are_texts((*pods, *voters, *beats, *beats.values())) or any(forms.uid_errors(each) for each in pods):
        return None
    marks = {key: given.get(key, False) for key in ("withdrawn", "virtual")}
    if not all(isinstance(each, bool) for each in marks.values()):
        return None
    return Promise(**words, pods=tuple(pods), voters=tuple(voters), beats=beats, **marks)


def _are_texts(given: Iterable[object]) -> bool:
    return all(isinstance(each, str) and len(each) <= MAX_TEXT for each in given)


def lease(name: str, namespace: str, promise: Promise, now: str, before: Object | None, times: Times = DEFAULT) -> Object:
    """Return the Lease of node ``name``'s guardian with this promise, not sealed, to write over ``before`` (None: create it).

    ``now`` (RFC 3339) is for people.
    """
    version = (before or {}).get("metadata", {}).get("resourceVersion")
    return {
        "apiVersion": LEASES.api_version,
        "kind": LEASES.kind,
        "metadata": {
            "name": names.guardian_lease(name),
            "namespace": namespace,
            "labels": {names.COMPONENT_LABEL: names.GUARDIAN},
            "annotations": {PROMISE_ANNOTATION: json.dumps(asdict(promise), separators=(",", ":"))},
            **({"resourceVersion": version} if version else {}),
        },
        "spec": {"holderIdentity": name, "leaseDurationSeconds": int(times.promise), "renewTime": now},
    }


def sealed(found: Object, at: str) -> Object:
    """Return a copy of a Lease, with its ``resourceVersion``, and with a seal of the time ``at``."""
    metadata = found["metadata"]
    return {**found, "metadata": {**metadata, "annotations": {**annotations_of(found), SEALED_ANNOTATION: at}}}


def sealed_pods(leases: Iterable[Object]) -> dict[str, frozenset[str]]:
    """Return by node the uids of the pods that its sealed Lease lists: nothing of them runs there, or will run.

    A guardian's word counts only for its own node. It omits nodes without a valid promise, or with a withdrawn one.
    """
    promises = {guardian_of(each): promise_of(each) for each in leases if is_sealed(each)}
    return {node: frozenset(each.pods) for node, each in promises.items() if node and each is not None and not each.withdrawn}
