"""Plug-ins, in the order in which they run, and which of them are on."""

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
"""Of kinds that nodes write: whoever serves them brings it, and only there it is."""
POD_RESTRICTION: Final = "PodRestriction"
"""Of kinds whose status names pods: likewise."""

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
"""Go's recommended order, and NodeRestriction where kube-apiserver has it; PodRestriction behind those of the cluster, because it asks
kube-apiserver about what they let through. Quota comes last, so that nothing is charged for what another
plug-in refuses."""
OFF: Final = frozenset({RESOURCE_QUOTA})
"""Not on by default: Go's aggregated servers do not have it, and it writes to the cluster."""


def enabled(enable: Sequence[str], disable: Sequence[str]) -> tuple[str, ...]:
    """Return the plug-ins that are on, in their order.

    Raises:
        ValueError: a plug-in is unknown, or both on and off.
    """
    for flag, given in (("enable-admission-plugins", enable), ("disable-admission-plugins", disable)):
        for each in given:
            if each not in ORDER:
                raise ValueError(f'{flag} plugin "{each}" is unknown')
    if both := sorted(set(enable) & set(disable)):
        raise ValueError(f"[{' '.join(both)}] in enable-admission-plugins and disable-admission-plugins overlapped")
    off = (OFF | set(disable)) - set(enable)
    return tuple(each for each in ORDER if each not in off)
