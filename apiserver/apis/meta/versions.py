"""Kubernetes' order of API versions: ``v2``, ``v1``, ``v1beta2``, ``v1beta1``, ``v1alpha1``, then others by name.

Source: ``k8s.io/apimachinery/pkg/version`` (``CompareKubeAwareVersionStrings``).
"""

from __future__ import annotations

import re
from typing import Final

_VERSION: Final = re.compile(r"v([1-9][0-9]*)(?:(alpha|beta)([1-9][0-9]*))?")
_STABILITY: Final = {None: 0, "beta": 1, "alpha": 2}


def preference(version: str) -> tuple[int, int, int, str]:
    """Return a sort key for Kubernetes' order."""
    if not (found := _VERSION.fullmatch(version)):
        return 3, 0, 0, version
    major, stability, minor = found.groups()
    return _STABILITY[stability], -int(major), -int(minor or 0), version
