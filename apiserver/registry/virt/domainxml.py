"""The subresource ``domainxml``: libvirt's XML."""

from __future__ import annotations

from apiserver.apis.meta.objects import Object
from apiserver.apis.meta.resources import Resource
from apiserver.apis.virt.domainxml import subresource
from apiserver.apis.virt.places import names
from apiserver.apis.virt.v1alpha1.given_xml import VirtualMachineDomainXML
from apiserver.registry.virt.reads import HandlerRead


class DomainXML(HandlerRead):
    """Serves ``domainxml``."""

    name = subresource.NAME
    answers = Resource(names.GROUP, names.VERSION, "virtualmachinedomainxmls", "VirtualMachineDomainXML")
    model = VirtualMachineDomainXML

    def fields(self, answer: Object) -> Object:
        """Return ``{"xml": text}``, checked; raises ValueError."""
        text = answer.get(subresource.FIELD)
        if not isinstance(text, str):
            raise ValueError(f"{subresource.FIELD} must be a string")  # noqa: TRY004  # what read expects of what is no such answer
        return subresource.parse(text)
