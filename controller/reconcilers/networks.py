"""The NetworkAttachmentDefinitions that a machine names, and those of them that there are not.

They are asked for one by one where a machine is to start, and while its pod does: whether the cluster has such a resource at all is
its administrator's affair, and a copy of all of them would be kept for few machines.
"""

from __future__ import annotations

from typing import Final

from apiserver.apis.meta import errors
from apiserver.apis.meta.lines import one_line
from apiserver.apis.meta.objects import Object
from apiserver.apis.virt import attachments, phases, power
from apiserver.client.rest import Client
from controller.reconcilers import attempts, pod_state

LOOK_SECONDS: Final = 10.0
"""Between two looks for a network that is missing: nobody tells virt-controller when it is made."""


def is_to_look(vm: Object) -> bool:
    """Return whether a network that is missing keeps the machine from starting now."""
    return bool(attachments.of(vm)) and (phases.phase_of(vm) == phases.SCHEDULING if attempts.is_open(vm) else power.decide(vm).on)


async def missing(client: Client, vm: Object) -> tuple[str, ...]:
    """Return the networks, as namespace/name, of which there is no NetworkAttachmentDefinition."""
    found = []
    for namespace, name in dict.fromkeys((each.namespace, each.name) for each in attachments.of(vm)):
        try:
            await client.get(attachments.NETWORK_ATTACHMENT_DEFINITIONS, name, namespace)
        except errors.NotFound:  # the resource itself may be absent, too
            found.append(f"{namespace}/{name}")
        except errors.Forbidden:  # by an older chart, or by whoever restricts this one: then the pod's own Events tell
            continue
    return tuple(found)


def message(networks: tuple[str, ...]) -> str:
    """Return what is said of networks that are missing."""
    text = f"NetworkAttachmentDefinition not found: {', '.join(networks)}; the virtual machine starts when it exists"
    return one_line(text, pod_state.MAX_MESSAGE)
