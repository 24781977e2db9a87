"""``kubectl virt top``: processor time and memory of machines, from the metrics API of their pods."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from apiserver.apis.meta import errors, quantity
from apiserver.apis.meta.objects import NamespacedName, Object, dig, key_of, name_of, namespace_of
from apiserver.apis.meta.resources import Resource
from apiserver.apis.virt.kinds import dig_vm
from apiserver.apis.virt.lifecycle import phases
from apiserver.apis.virt.places import names
from apiserver.apis.virt.places.resources import VIRTUAL_MACHINES
from apiserver.kubectl import guestinfo, messages, verbs
from apiserver.kubectl.access import Access

COMMAND: Final = "top"
POD_METRICS: Final = Resource("metrics.k8s.io", "v1beta1", "pods", "PodMetrics")
COLUMNS: Final = {"cpu": "CPU(cores)", "memory": "MEMORY(bytes)"}
"""Titles by ``--sort-by``."""
UNKNOWN: Final = "<unknown>"
"""As ``kubectl top node``."""
PAGE: Final = 100


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which machines to show, and how."""

    name: str = ""
    """Empty for all."""
    all_namespaces: bool = False
    selector: str = ""
    sort_by: str = ""
    headers: bool = True


@dataclass(frozen=True, slots=True)
class Usage:
    """Processor time and memory that a pod's containers use."""

    cpu: int
    """Thousandths of a processor."""
    memory: int
    """Bytes."""


async def show(access: Access, wanted: Wanted, page: int = PAGE) -> str:
    """Return the table of machines' usage as text; a sentence if no machine has a guest. ``page``: machines per request.

    Raises Failure, also without metrics API, and for a named machine without a guest.
    """
    if wanted.name and wanted.all_namespaces:
        raise messages.Failure("error: a virtual machine cannot be named across all namespaces; omit -A, or the name")
    namespace = None if wanted.all_namespaces else access.namespace
    usage = await _usage(access, namespace)
    machines = [each for each in await _machines(access, namespace, wanted, page) if phases.phase_of(each) in phases.WITH_GUEST]
    if wanted.name and not machines:
        raise messages.Failure(f"error: virtual machine {access.namespace}/{wanted.name} does not run, so it uses nothing")
    if not machines:
        where = "all namespaces" if wanted.all_namespaces else f"namespace {access.namespace}"
        return f"No virtual machine in {where} has a guest."
    return "\n".join(guestinfo.aligned(table(machines, usage, wanted)))


def table(machines: Iterable[Object], usage: Mapping[NamespacedName, Usage | None], wanted: Wanted) -> list[list[str]]:
    """Return rows of cells, after titles if wanted: by namespace and name, or by ``sort_by``, largest first."""
    found = [(each, usage.get(NamespacedName(namespace_of(each), _pod_of(each)))) for each in machines]
    found.sort(key=lambda row: key_of(row[0]))
    if wanted.sort_by:
        found.sort(key=lambda row: -1 if row[1] is None else getattr(row[1], wanted.sort_by), reverse=True)
    rows = [[namespace_of(vm), name_of(vm), *_cells(used)] for vm, used in found]
    titles = [["NAMESPACE", "NAME", *COLUMNS.values()]] if wanted.headers else []
    return [row if wanted.all_namespaces else row[1:] for row in titles + rows]


def usage_of(metrics: Object) -> Usage | None:
    """Return a pod's usage, its containers' sum; None if a quantity is malformed."""
    used = [container.get("usage") or {} for container in metrics.get("containers") or ()]
    try:
        return Usage(
            sum(quantity.parse(str(each.get("cpu", "0"))).milli for each in used),
            sum(quantity.parse(str(each.get("memory", "0"))).bytes for each in used),
        )
    except ValueError:
        return None


def _cells(used: Usage | None) -> list[str]:
    return [UNKNOWN, UNKNOWN] if used is None else [f"{used.cpu}m", f"{used.memory >> 20}Mi"]


def _pod_of(vm: Object) -> str:
    return str(dig_vm(vm, "status", "podName") or "")


async def _usage(access: Access, namespace: str | None) -> Mapping[NamespacedName, Usage | None]:
    doing = "read the metrics of pods"
    try:
        listed = await verbs.answered(access, "GET", POD_METRICS.path(namespace), doing, params={"labelSelector": names.VM_NAME_LABEL})
        return {key_of(each): usage_of(each) for each in listed.get("items") or ()}
    except errors.NotFound as error:
        raise messages.Failure("error: Metrics API not available (metrics.k8s.io); install metrics-server") from error
    except errors.StatusError as error:
        raise messages.of_status(error, doing) from error


async def _machines(access: Access, namespace: str | None, wanted: Wanted, page: int) -> list[Object]:
    if wanted.name:
        return [await verbs.request(access, "GET", VIRTUAL_MACHINES.path(namespace, wanted.name), f"read virtual machine {wanted.name}")]
    found: list[Object] = []
    params = {"limit": str(page), **({"labelSelector": wanted.selector} if wanted.selector else {})}
    while True:
        listed = await verbs.request(access, "GET", VIRTUAL_MACHINES.path(namespace), "list virtual machines", params=params)
        found += listed.get("items") or ()
        if not (more := dig(listed, "metadata", "continue")):
            return found
        params |= {"continue": str(more)}
