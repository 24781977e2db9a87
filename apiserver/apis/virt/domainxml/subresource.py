"""The subresource ``domainxml``: the XML for libvirt, as virt-launcher reports it."""

from __future__ import annotations

from typing import Final

from apiserver.apis.meta.objects import Object
from apiserver.apis.virt.domainxml import characters

NAME: Final = "domainxml"
FIELD: Final = "xml"
MAX_CHARACTERS: Final = 128 << 10
"""Twice a machine's own limit: values may be longer than placeholders."""


def parse(text: str) -> Object:
    """Return virt-launcher's XML, not parsed, as ``{"xml": text}``.

    Raises:
        ValueError: it is too long, or has characters that :mod:`characters` refuses.
    """
    if len(text) > MAX_CHARACTERS:
        raise ValueError(f"longer than {MAX_CHARACTERS} characters")
    if wrong := characters.problem(text):
        raise ValueError(wrong)
    return {FIELD: text}
