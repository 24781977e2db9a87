"""Print ``domainxml``: the XML that libvirt got for a machine."""

from __future__ import annotations

from apiserver.apis.meta.objects import Object
from apiserver.apis.virt.domainxml import subresource
from apiserver.apis.virt.places.resources import VIRTUAL_MACHINES
from apiserver.kubectl import verbs
from apiserver.kubectl.access import Access
from apiserver.kubectl.messages import Failure


async def show(access: Access, name: str) -> str:
    """Return a machine's domain XML. Raises Failure."""
    doing = f"read the domain XML of virtual machine {access.namespace}/{name}"
    answer = await verbs.request(access, "GET", VIRTUAL_MACHINES.path(access.namespace, name, subresource.NAME), doing)
    return printed(answer, doing)


def printed(answer: Object, doing: str) -> str:
    """Return an answer's XML; raises Failure, with ``doing``, if it cannot be shown, as with control characters."""
    try:
        return str(subresource.parse(str(answer[subresource.FIELD]))[subresource.FIELD]).rstrip("\n")
    except (KeyError, ValueError) as error:
        raise Failure(f"error: cannot {doing}: the response cannot be shown: {error}") from error
