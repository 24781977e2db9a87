"""Errors in the words of ``k8s.io/apiserver/pkg/admission``."""

from __future__ import annotations

from apiserver.apis.meta.errors import Cause, Details, Forbidden, InternalError
from apiserver.apis.meta.objects import dig
from apiserver.registry.generic.admission import Attributes


def internal(text: str) -> InternalError:
    """Return the error of an admission that cannot decide (Go: ``NewInternalError``)."""
    return InternalError(f"Internal error occurred: {text}", Details(causes=(Cause("", text),)))


def forbidden(attributes: Attributes, text: str) -> Forbidden:
    """Return the refusal of a request (Go: ``admission.NewForbidden``)."""
    resource = attributes.resource
    name = attributes.name or dig(attributes.obj, "metadata", "name") or dig(attributes.obj, "metadata", "generateName") or "Unknown"
    qualified = f"{resource.plural}.{resource.group}" if resource.group else resource.plural
    details = Details(name=name, group=resource.group, kind=resource.plural)
    return Forbidden(f"{qualified} {quoted(name)} is forbidden: {text}", details)


def quoted(text: str) -> str:
    """Return ``text`` in quotation marks, with a backslash before each backslash and quotation mark."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
