"""The subresource ``domainxml``: what libvirt was given, by way of virt-handler and virt-launcher."""

from __future__ import annotations

from apiserver.apis.meta.objects import Object
from apiserver.apis.meta.resources import Resource
from apiserver.apis.virt.domainxml import subresource
from apiserver.apis.virt.places import names
from apiserver.apis.virt.v1alpha1.given_xml import VirtualMachineDomainXML
from apiserver.registry.virt.reads import HandlerRead


class DomainXML(HandlerRead):
    """Subresource ``domainxml``: the XML that libvirt was given."""

    name = subresource.NAME
    answers = Resource(names.GROUP, names.VERSION, "virtualmachinedomainxmls", "VirtualMachineDomainXML")
    model = VirtualMachineDomainXML

    def fields(self, answer: Object) -> Object:
        """Return it, if it is text that can be shown: the node is not believed to have looked."""
        text = answer.get(subresource.FIELD)
        if not isinstance(text, str):
            raise ValueError(f"{subresource.FIELD} must be a string")  # noqa: TRY004  # what read expects of what is no such answer
        return subresource.parse(text)
