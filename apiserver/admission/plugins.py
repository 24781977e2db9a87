"""Plug-ins in order, and the enabled ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

NAMESPACE_LIFECYCLE: Final = "NamespaceLifecycle"
MUTATING_POLICY: Final = "MutatingAdmissionPolicy"
MUTATING_WEBHOOK: Final = "MutatingAdmissionWebhook"
VALIDATING_POLICY: Final = "ValidatingAdmissionPolicy"
VALIDATING_WEBHOOK: Final = "ValidatingAdmissionWebhook"
RESOURCE_QUOTA: Final = "ResourceQuota"
NODE_RESTRICTION: Final = "NodeRestriction"
POD_RESTRICTION: Final = "PodRestriction"

ORDER: Final = (
    NAMESPACE_LIFECYCLE,
    NODE_RESTRICTION,
    MUTATING_POLICY,
    MUTATING_WEBHOOK,
    VALIDATING_POLICY,
    VALIDATING_WEBHOOK,
    POD_RESTRICTION,
    RESOURCE_QUOTA,
)
"""Go's recommended order.

PodRestriction only sees what the cluster's plug-ins admit; quota is last, so refused requests are not charged.
"""
OFF: Final = frozenset({RESOURCE_QUOTA})
"""Go's aggregated servers lack it, and it writes to the cluster."""


def enabled(enable: Sequence[str], disable: Sequence[str]) -> tuple[str, ...]:
    """Return the names of enabled plug-ins in order; raises ValueError for unknown or contradicting names."""
    for flag, given in (("enable-admission-plugins", enable), ("disable-admission-plugins", disable)):
        for each in given:
            if each not in ORDER:
                raise ValueError(f'{flag} plugin "{each}" is unknown')
    if both := sorted(set(enable) & set(disable)):
        raise ValueError(f"[{' '.join(both)}] in enable-admission-plugins and disable-admission-plugins overlapped")
    off = (OFF | set(disable)) - set(enable)
    return tuple(each for each in ORDER if each not in off)
