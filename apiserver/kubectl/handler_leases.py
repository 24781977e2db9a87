"""Finds virt-handlers' Leases. Only those in the release's namespace are authentic."""

from __future__ import annotations

from typing import Final

from apiserver.apis.core.resources import API_SERVICES, LEASES
from apiserver.apis.meta import errors
from apiserver.apis.meta.objects import Object, annotations_of, dig, name_of
from apiserver.apis.virt.places import names
from apiserver.kubectl import listing, messages, verbs
from apiserver.kubectl.access import Access

_API_SERVICE: Final = f"{names.VERSION}.{names.GROUP}"
_DOING: Final = "list leases of virt-handlers"


async def of_node(access: Access, node: str) -> list[Object]:
    """Return the Leases of a node's virt-handler: of all namespaces if the release's is unknown. Raises Failure."""
    return await _listed(access, {"fieldSelector": f"metadata.name={names.handler_lease(node)}"})


async def by_name(access: Access) -> dict[str, Object]:
    """Return virt-handlers' Leases by name, of several with one name the newest. Raises Failure."""
    return {name_of(each): each for each in sorted(await _listed(access, {}), key=lambda each: str(dig(each, "spec", "renewTime")))}


async def _listed(access: Access, params: dict[str, str]) -> list[Object]:
    path = LEASES.path(await _namespace(access) or None)
    selected = {**params, "labelSelector": f"{names.COMPONENT_LABEL}={names.HANDLER}"}
    return [each async for each in listing.listed(access, path, _DOING, params=selected)]


async def _namespace(access: Access) -> str:
    """Return the namespace of the release's Leases; empty for charts of older versions, and without the right to read the APIService."""
    doing = f"get APIService {_API_SERVICE}"
    try:
        found = await verbs.answered(access, "GET", API_SERVICES.path(name=_API_SERVICE), doing)
    except (errors.NotFound, errors.Forbidden):
        return ""
    except errors.StatusError as error:
        raise messages.of_status(error, doing) from error
    return annotations_of(found).get(names.LEASE_NAMESPACE_ANNOTATION, "")
