"""Actions on a machine with one request each."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping
from typing import Any, Final

from apiserver.apis.meta import errors
from apiserver.apis.virt.places import names
from apiserver.kubectl import messages
from apiserver.kubectl.access import Access

VERBS: Final = {
    "start": "start the machine",
    "stop": "shut the guest down; after its grace period, power it off",
    "poweroff": "power the guest off at once; unwritten data is lost",
    "restart": "stop the machine and start it again",
    "suspend": "save the guest's memory where spec.managedSave says and end its pod; resume continues from it",
    "resume": "resume a suspended guest from its saved memory, on any node that can read it",
    "pause": "pause the guest: stop its processors, keep its memory",
    "unpause": "continue a paused guest",
    "reset": "reset the guest at once, like a reset button; unwritten data is lost",
    "softreboot": "ask the guest to reboot, through its agent or else its power button",
    "nmi": "send the guest's processors a non-maskable interrupt",
    "sendkey": "press keys on the guest's keyboard",
    "freeze": "freeze the guest's file systems through its agent, for a backup or snapshot; they thaw automatically later",
    "thaw": "thaw the guest's frozen file systems",
    "migrate": "move the running guest to another node",
    "cancelmigration": "cancel the live migration of the guest, which stays on its node",
}
_NO_VIRT_API: Final = (
    f"kube-apiserver may not reach virt-api: look at kubectl get apiservice {names.VERSION}.{names.GROUP}"
    f" and kubectl get pods -A -l {names.COMPONENT_LABEL}=virt-api"
)


def body_of(parsed: argparse.Namespace) -> dict[str, Any]:
    """Return a verb's request body for its flags."""
    found: dict[str, Any] = {}
    match parsed.command:
        case "start":
            found |= {key: True for key, given in (("paused", parsed.paused), ("discardState", parsed.discard_state)) if given}
        case "stop" if parsed.force or parsed.grace_period is not None:
            found["gracePeriodSeconds"] = 0 if parsed.force else parsed.grace_period
        case "sendkey":
            found["keys"] = parsed.keys
            if parsed.hold is not None:
                found["holdMilliseconds"] = round(parsed.hold * 1000)
        case "freeze" if parsed.unfreeze_timeout is not None:
            found["unfreezeTimeoutSeconds"] = round(parsed.unfreeze_timeout)
        case "migrate" if parsed.priority is not None:
            found["priority"] = parsed.priority
    if getattr(parsed, "node", None):
        found["nodeSelector"] = {names.HOSTNAME_LABEL: parsed.node}
    return found


async def request(
    access: Access,
    method: str,
    path: str,
    doing: str,
    *,
    params: Mapping[str, str] | None = None,
    body: Any = None,  # noqa: ANN401  JSON
) -> dict[str, Any]:
    """Send one request and return the answer's object, empty if it has none.

    Raises Failure; its text has ``doing``, such as ``start virtual machine default/web``.
    """
    try:
        return await answered(access, method, path, doing, params=params, body=body)
    except errors.StatusError as error:
        raise messages.of_status(error, doing) from error


async def answered(
    access: Access,
    method: str,
    path: str,
    doing: str,
    *,
    params: Mapping[str, str] | None = None,
    body: Any = None,  # noqa: ANN401  JSON
) -> dict[str, Any]:
    """Send one request, print a successful answer's warnings, and return its object, empty if it has none.

    Raises StatusError, or Unreachable with ``doing`` in its text.
    """
    from apiserver.kubectl import http  # slow to import, and consoles send no requests

    try:
        status, raw, warnings = await http.send(access, method, path, params=params, body=body)
    except http.FAILURES as error:
        raise messages.of_transport(error, access.server, doing) from error
    if status >= 300:
        raise refusal(status, raw)
    sys.stderr.write("".join(f"{each}\n" for each in warnings))
    try:
        answer = json.loads(raw)
    except ValueError:
        answer = {}
    return answer if isinstance(answer, dict) else {}


def refusal(status: int, raw: bytes) -> errors.StatusError:
    """Return the StatusError for a response with this code and body; redirects are not followed."""
    if 300 <= status < 400:
        return errors.from_http(status, "it redirects to another server, which is not followed")
    try:
        body = json.loads(raw)
    except ValueError:
        body = None
    if isinstance(body, dict) and body.get("kind") == "Status":
        return errors.from_status(body, status)
    said = raw[:500].decode(errors="replace").strip()
    return errors.from_http(status, f"{said}; {_NO_VIRT_API}" if status == 503 else said)
