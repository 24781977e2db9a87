"""``kubectl virt outdated``: machines with a virt-launcher of another version, and their plans."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from apiserver.apis.meta.lines import one_line
from apiserver.apis.meta.objects import Object, condition, name_of, namespace_of
from apiserver.apis.virt.kinds import dig_vm
from apiserver.apis.virt.lifecycle import conditions
from apiserver.apis.virt.places.resources import VIRTUAL_MACHINES
from apiserver.kubectl import guestinfo, listing
from apiserver.kubectl.access import Access

COMMAND: Final = "outdated"
MAX_MESSAGE: Final = 1000
TITLES: Final = ("NAME", "NODE", "UPDATE", "MESSAGE")


async def show(access: Access, *, all_namespaces: bool, page: int = listing.PAGE) -> str:
    """Return a table, as text, of machines with an outdated virt-launcher; without any, a sentence.

    ``page``: machines per request. Raises Failure.
    """
    where = "all namespaces" if all_namespaces else f"namespace {access.namespace}"
    found = await _machines(access, where, page, all_namespaces=all_namespaces)
    rows = list(_rows(found, all_namespaces=all_namespaces))
    if not rows:
        return f"No virtual machine in {where} has an outdated virt-launcher."
    return "\n".join(guestinfo.aligned([(*(["NAMESPACE"] if all_namespaces else []), *TITLES), *rows]))


async def _machines(access: Access, where: str, page: int, *, all_namespaces: bool) -> list[Object]:
    doing, path = f"list the virtual machines of {where}", VIRTUAL_MACHINES.path(None if all_namespaces else access.namespace)
    return [each async for each in listing.listed(access, path, doing, page=page) if _of(each) is not None]


def _of(vm: Object) -> Mapping[str, Any] | None:
    found = condition(dig_vm(vm, "status", "conditions"), conditions.LAUNCHER_OUTDATED)
    return found if found is not None and found.get("status") == "True" else None


def _rows(machines: Iterable[Object], *, all_namespaces: bool) -> Iterable[Sequence[str]]:
    for vm in machines:
        found = _of(vm) or {}
        cells = (
            name_of(vm),
            str(dig_vm(vm, "status", "nodeName") or ""),
            one_line(str(found.get("reason") or ""), MAX_MESSAGE),
            one_line(str(found.get("message") or ""), MAX_MESSAGE),
        )
        yield (*([namespace_of(vm)] if all_namespaces else []), *cells)
