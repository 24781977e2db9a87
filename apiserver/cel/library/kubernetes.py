"""Functions of Kubernetes 1.36's environment, without ``cel.bind`` and the math extension.

Source: ``k8s.io/apiserver/pkg/cel/environment/base.go``.
"""

from __future__ import annotations

from typing import Final

from apiserver.cel import cost
from apiserver.cel.frame import Frame
from apiserver.cel.library import amounts, authz, formats, lists, networks, optionals, regexes, standard, strings, urls
from apiserver.cel.registry import Library

LIBRARY: Final = Library()
"""For conditions."""
PATCH_LIBRARY: Final = Library()
"""For mutations; adds ``jsonpatch.escapeKey``."""

for _each in (standard, regexes, strings, lists, optionals, networks, urls, amounts, formats, authz):
    LIBRARY.include(_each.LIBRARY)
PATCH_LIBRARY.include(LIBRARY)


@PATCH_LIBRARY.function("jsonpatch.escapeKey", str)
def _escape_key(frame: Frame, key: str) -> str:
    frame.charge(cost.traversal(len(key)))
    return key.replace("~", "~0").replace("/", "~1")
