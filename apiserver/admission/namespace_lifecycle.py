"""NamespaceLifecycle: without it, a namespace's deletion might never end.

Source: ``k8s.io/apiserver/pkg/admission/plugin/namespace/lifecycle``.
"""

from __future__ import annotations

from dataclasses import replace

from apiserver.admission.errors import forbidden
from apiserver.admission.namespaces import Namespaces
from apiserver.apis.meta.errors import Cause, Forbidden
from apiserver.apis.meta.objects import dig, is_deleting
from apiserver.apis.meta.resources import Resource
from apiserver.registry.generic.admission import Attributes, Operation


class NamespaceLifecycle:
    """The admission plug-in that refuses new objects in a missing or terminating namespace."""

    name = "NamespaceLifecycle"

    def __init__(self, namespaces: Namespaces) -> None:
        self._namespaces = namespaces

    def handles(self, operation: Operation, resource: Resource, subresource: str) -> bool:
        """Return whether the request creates a namespaced object."""
        del subresource
        return operation == "CREATE" and resource.namespaced

    async def mutate(self, attributes: Attributes) -> None:
        """Check the namespace of a new object.

        Raises NotFound; Forbidden with cause ``NamespaceTerminating``; ServiceUnavailable without kube-apiserver.
        """
        found = await self._namespaces.get(attributes.namespace)
        if is_deleting(found) or dig(found, "status", "phase") == "Terminating":
            raise _terminating(attributes)

    async def validate(self, attributes: Attributes) -> None:
        """Do nothing."""


def _terminating(attributes: Attributes) -> Forbidden:
    namespace = attributes.namespace
    refusal = forbidden(attributes, f"unable to create new content in namespace {namespace} because it is being terminated")
    cause = Cause("NamespaceTerminating", f"namespace {namespace} is being terminated", "metadata.namespace")
    refusal.details = replace(refusal.details, causes=(cause,))
    return refusal
