"""The CPU of a machine with KVM that specifies none: the best model that every node of its pool has. Pure.

The pool is the nodes that offer KVM, have CPU labels (:mod:`handler.cpu`), and match the pod's placement. Taints, readiness and cordons are
ignored, because they change while the machine runs, and a migration should find as many nodes as possible.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from apiserver.apis.meta.lines import one_line
from apiserver.apis.meta.objects import Object, dig, labels_of, name_of
from apiserver.apis.virt.hardware import cpu_models
from apiserver.apis.virt.places import names
from apiserver.apis.virt.spec.chosen_cpu import Chosen
from controller.reconcilers.launcher_pods import cpu

PROCESSORS: Final = "processors"
"""Member of a trimmed Node: the keys of its CPU labels, shared between nodes."""
CANDIDATE: Final = "candidate"
"""The same: whether the node offers KVM and has labels of CPU models. Each start looks at all nodes."""
MAX_PROCESSORS: Final = 2 * cpu.MAX_LABELS
"""virt-handler writes half as many, but a kubelet can write any number."""
MAX_REQUIREMENTS: Final = 512
"""Terms, labels and values in a machine's constraints, which are compared with all nodes."""
HOST_PASSTHROUGH: Final = "host-passthrough"
_MAX_TEXT: Final = 300


@dataclass(frozen=True, slots=True)
class Choice:
    """The chosen CPU, or a message why there is none, so guests have the CPU of their node."""

    chosen: Chosen | None
    message: str = ""

    def status(self) -> Object:
        """Return the choice as a machine's ``status.cpu``."""
        if self.chosen is None:
            return {"model": HOST_PASSTHROUGH, "message": self.message}
        return {"model": self.chosen.model, **({"features": list(self.chosen.features)} if self.chosen.features else {})}


def trim_labels(node: Object) -> Object:
    """Return ``labels``, ``PROCESSORS`` and ``CANDIDATE`` for the metadata of a trimmed Node, from the whole Node.

    With more than :data:`MAX_PROCESSORS` CPU labels, a node loses them and is in no pool, because virt-handler did not write them.
    """
    labels = labels_of(node)
    own = frozenset(key for key, value in labels.items() if value == cpu.TRUE and key.startswith(names.CPU_LABELS))
    shared = _shared(own if len(own) <= MAX_PROCESSORS else frozenset())
    others = {key: value for key, value in labels.items() if key not in own}
    return {"labels": others, PROCESSORS: shared, CANDIDATE: _offers(node) and _has_models(shared)}


@lru_cache(maxsize=256)
def _shared(own: frozenset[str]) -> frozenset[str]:
    return own


def choose(nodes: Iterable[Object], asked: Object, said: Iterable[str]) -> Choice:
    """Return the best known CPU model and the protections that all nodes of the pool have, or why there is none.

    ``nodes`` are trimmed; the pool is those that match ``asked``, the placement fields of the pod's spec. ``said`` has the features that
    the machine sets.
    """
    if _requirements(asked) > MAX_REQUIREMENTS:
        return Choice(
            None,
            (
                f"nodeSelector and nodeAffinity have more than {MAX_REQUIREMENTS} terms, labels and values, "
                "so virt-controller chooses no common CPU model"
            ),
        )
    candidates = (each for each in nodes if each["metadata"][CANDIDATE])
    pool = [each for each in candidates if matches(each, asked)] if _is_selective(asked) else list(candidates)
    if not pool:
        return Choice(None, "no node that the machine may run on offers KVM and has CPU model labels")
    kinds = {each["metadata"][PROCESSORS] for each in pool}
    vendors = {vendor for each in kinds for vendor in _vendors(each)}
    if "" in vendors:
        unknown = next(name_of(each) for each in pool if "" in _vendors(each["metadata"][PROCESSORS]))
        return Choice(
            None,
            one_line(f"the machine may run on node {unknown}, and libvirt does not know the model of that node's processor", _MAX_TEXT),
        )
    vendor, *others = sorted(vendors)
    if others:
        of = " and ".join((vendor, *others))
        text = (
            f"the machine may run on nodes of {of}, which have no CPU model in common: select nodes of one "
            "kind with spec.nodeSelector or spec.affinity"
        )
        return Choice(None, text)
    common = frozenset.intersection(*kinds)
    model = next((each for each in cpu_models.MODELS[vendor] if names.CPU_MODEL_LABELS + each in common), "")
    if not model:
        return Choice(None, "the nodes that the machine may run on have no CPU model in common")
    besides = frozenset(said)
    features = (each for each in cpu_models.PROTECTIONS if names.CPU_FEATURE_LABELS + each in common and each not in besides)
    return Choice(Chosen(model, tuple(features)))


def _requirements(asked: Object) -> int:
    required = dig(asked, "affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution", "nodeSelectorTerms") or ()
    expressions = [each for term in required for field in ("matchExpressions", "matchFields") for each in term.get(field) or ()]
    return len(asked.get("nodeSelector") or ()) + len(required) + sum(1 + len(each.get("values") or ()) for each in expressions)


def _offers(node: Object) -> bool:
    """Return whether the node offers KVM.

    While a device plugin restarts, the allocatable amount is 0 and the capacity remains for five minutes.
    """
    return any(dig(node, "status", each, names.KVM_RESOURCE) not in (None, "0") for each in ("allocatable", "capacity"))


def _has_models(processors: frozenset[str]) -> bool:
    return any(each.startswith(names.CPU_MODEL_LABELS) for each in processors)


@lru_cache
def _vendors(processors: frozenset[str]) -> frozenset[str]:
    prefix = names.HOST_MODEL_LABELS
    hosts = [each.removeprefix(prefix) for each in processors if each.startswith(prefix)]
    return frozenset(cpu_models.VENDORS.get(each, "") for each in hosts) or frozenset({""})


def _is_selective(asked: Object) -> bool:
    required = dig(asked, "affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution")
    return bool(asked.get("nodeName") or asked.get("nodeSelector")) or required is not None


def matches(node: Object, asked: Object) -> bool:
    """Return whether a trimmed Node matches ``asked``: ``nodeName``, ``nodeSelector`` and required node affinity, as in kube-scheduler."""
    if asked.get("nodeName"):
        return bool(asked["nodeName"] == name_of(node))
    if any(_label(node, key) != value for key, value in (asked.get("nodeSelector") or {}).items()):
        return False
    required = dig(asked, "affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution")
    return required is None or any(_fits(node, term) for term in required.get("nodeSelectorTerms") or ())


def _label(node: Object, key: str) -> str | None:
    found: str | None = cpu.TRUE if key in node["metadata"][PROCESSORS] else node["metadata"]["labels"].get(key)
    return found


def _fits(node: Object, term: Mapping[str, Any]) -> bool:
    """Return whether a trimmed Node matches a term of a node selector. An empty term matches no node."""
    expressions, fields = term.get("matchExpressions") or (), term.get("matchFields") or ()
    return bool(expressions or fields) and (
        all(_holds(_label(node, each["key"]), each["operator"], each.get("values") or ()) for each in expressions)
        and all(each["key"] == "metadata.name" and _holds(name_of(node), each["operator"], each.get("values") or ()) for each in fields)
    )


def _holds(found: str | None, operator: str, values: Sequence[str]) -> bool:
    match operator:
        case "In":
            return found in values
        case "NotIn":
            return found not in values
        case "Exists":
            return found is not None
        case "DoesNotExist":
            return found is None
        case "Gt" | "Lt":
            return _compares(found, operator, values)
        case _:
            return False


def _compares(found: str | None, operator: str, values: Sequence[str]) -> bool:
    try:
        (value,) = values
        here, there = int(found or ""), int(value)
    except ValueError:
        return False
    return here > there if operator == "Gt" else here < there
