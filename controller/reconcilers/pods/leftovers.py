"""Checks an existing pod with the name of a new one: an interrupted start or another client created it. Pure.

Any user who may create pods can compute the next pod's name and copy our labels and owner. So an existing pod is used only if it equals the
wanted one, apart from kube-apiserver's defaults and built-in admission. A pod changed by a webhook counts as different.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

from apiserver.apis.meta import quantity
from apiserver.apis.meta.objects import Object, annotations_of, dig, is_deleting, labels_of
from apiserver.apis.virt.places import names
from controller.reconcilers.launcher_pods import downward_api
from controller.reconcilers.pods import liveness, ownership

_AMOUNT: Final = re.compile(r"\.resources\.(limits|requests)\.|\.emptyDir\.sizeLimit$")


def _anything(_: object) -> bool:
    return True


def _is(*values: object) -> Callable[[object], bool]:
    return lambda value: value in values


ADDED: Final[Mapping[str, Callable[[object], bool]]] = MappingProxyType(
    {
        "spec.nodeName": _anything,
        "spec.dnsPolicy": _is("ClusterFirst"),
        "spec.schedulerName": _is("default-scheduler"),
        "spec.serviceAccount": _is("default"),
        "spec.serviceAccountName": _is("default"),
        "spec.imagePullSecrets": _anything,
        "spec.tolerations": _anything,
        "spec.priority": _anything,
        "spec.priorityClassName": _anything,  # a class can be the cluster's default
        "spec.preemptionPolicy": _anything,
        **{
            f"spec.{containers}[].{field}": is_allowed
            for containers in ("containers", "initContainers")
            for field, is_allowed in (
                ("terminationMessagePath", _is("/dev/termination-log")),
                ("terminationMessagePolicy", _is("File")),
                ("imagePullPolicy", _anything),
            )
        },
        "spec.volumes[].image.pullPolicy": _anything,
    }
)
"""Additions by the Pod API's defaults, the scheduler, and the admission plug-ins ServiceAccount, Priority and DefaultTolerationSeconds.
None gives a pod more than a machine can request."""


def objection(found: Object, wanted: Object, vm: Object) -> str:
    """Return why the pod ``found`` cannot be used for ``wanted``, which has the same name; empty if it can."""
    if not ownership.is_launcher(found):
        return "it is not a launcher pod"
    if not ownership.is_controlled_by(found, vm):
        return "its controller is not this virtual machine"
    if is_deleting(found):
        return "it is being deleted"
    if not liveness.may_run(found):
        return "it has ended"
    for label in names.POD_LABELS:
        if labels_of(found).get(label) != labels_of(wanted).get(label):
            return f"metadata.labels[{label}] differs"
    for name in (names.ATTEMPT_ANNOTATION, names.SPEC_ANNOTATION):
        if annotations_of(found).get(name) != annotations_of(wanted).get(name):
            return f"metadata.annotations[{name}] differs"
    for name, value in annotations_of(wanted).items():
        if name.startswith(downward_api.ANNOTATION) and annotations_of(found).get(name) != value:
            return f"metadata.annotations[{name}] differs"
    where = _difference(dig(found, "spec"), dig(wanted, "spec"), "spec")
    return f"{where} differs" if where else ""


def _difference(found: Any, wanted: Any, path: str) -> str:  # noqa: ANN401 - whatever JSON can say
    if isinstance(wanted, dict) and isinstance(found, dict):
        return _of_mappings(found, wanted, path)
    if isinstance(wanted, list) and isinstance(found, list):
        return _of_lists(found, wanted, path)
    if isinstance(wanted, str) and isinstance(found, str) and _AMOUNT.search(path):
        return "" if _same_amount(found, wanted) else path
    return "" if type(found) is type(wanted) and found == wanted else path


def _of_mappings(found: Mapping[str, Any], wanted: Mapping[str, Any], path: str) -> str:
    for key, value in wanted.items():
        where = f"{path}.{key}"
        if key not in found or (where := _difference(found[key], value, where)):
            return where
    for key in found.keys() - wanted.keys():
        allowed = ADDED.get(f"{path}.{key}")
        if allowed is None or not allowed(found[key]):
            return f"{path}.{key}"
    return ""


def _of_lists(found: Sequence[Any], wanted: Sequence[Any], path: str) -> str:
    if path == "spec.tolerations":
        found = found[: len(wanted)]
    if len(found) != len(wanted):
        return path
    return next((where for here, there in zip(found, wanted, strict=True) if (where := _difference(here, there, f"{path}[]"))), "")


def _same_amount(found: str, wanted: str) -> bool:
    try:
        return quantity.parse(found) == quantity.parse(wanted)
    except ValueError:
        return False
