"""The subresource ``domainxml``: the XML that libvirt was given, as virt-launcher says it."""

from __future__ import annotations

from typing import Final

from apiserver.apis.meta.objects import Object
from apiserver.apis.virt.domainxml import characters

NAME: Final = "domainxml"
FIELD: Final = "xml"
MAX_CHARACTERS: Final = 128 << 10
"""Twice what a machine's own may have: what is filled in may be longer than its placeholder."""


def parse(text: str) -> Object:
    """Return the fields of the answer.

    Raises:
        ValueError: it is too long, or has characters that a terminal would obey, or that show it as another text.
    """
    if len(text) > MAX_CHARACTERS:
        raise ValueError(f"longer than {MAX_CHARACTERS} characters")
    if wrong := characters.problem(text):
        raise ValueError(wrong)
    return {FIELD: text}
