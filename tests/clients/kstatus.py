"""kstatus' rules for unknown kinds, in Python; tests/reference_library/test_health.py compares them with Go's."""

from __future__ import annotations

from typing import Any


def result(obj: dict[str, Any]) -> str:
    """Return an object's state as Helm 4, Flux and kpt see it: ``Current``, ``InProgress``, ``Failed`` or ``Terminating``."""
    metadata, status = obj["metadata"], obj.get("status") or {}
    if metadata.get("deletionTimestamp"):
        return "Terminating"
    if status.get("observedGeneration", metadata["generation"]) != metadata["generation"]:
        return "InProgress"
    for each in status.get("conditions") or ():
        if each["status"] == "True" and each["type"] in ("Reconciling", "Stalled"):
            return "InProgress" if each["type"] == "Reconciling" else "Failed"
    ready = next((each["status"] for each in status.get("conditions") or () if each["type"] == "Ready"), "True")
    return "Current" if ready == "True" else "InProgress"
