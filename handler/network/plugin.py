"""Our network plugins, one per interface type: ``python -m handler.network.plugin``. docs/plugins.md has the interface.

All that it makes ends with the pod's network namespace, and ADD repairs missing parts, so CHECK and DEL are not needed. It imports only
the standard library, without asyncio.
"""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Any, Final

from apiserver.apis.virt.places import network
from handler.network import binding, bindings, bridged, filters, results
from handler.network.binding import Observed, Plan, Unsupported, Wanted
from handler.plugins import protocol, serving
from handler.plugins.serving import Document, Error

_SECONDS: Final = 20.0
"""Limit of one program."""
_BYTES: Final = 500
_NEIGHBOUR_LOOKS: Final = 40
_LOOK_SECONDS: Final = 0.1
"""The kernel asks three times, a second apart (RFC 4861, section 10)."""


def main() -> int:
    """Carry out the command of this process' environment, and return the exit status."""
    return serving.serve("network", {"ADD": add}, live_migration=True)


def add(told: Document) -> Document:
    """Join the ``interface`` of virt-handler's request to its network; return our plugins' result. Idempotent. Raises Error.

    The pod's namespace is in ``KUBEVIRT_NETNS``. The protocol is ours (docs/plugins.md), not CNI's.
    """
    wanted = _wanted(told)
    plan = _plan(wanted)
    if plan.script:
        _carry_out(plan)
    return results.members(plan.interface)


def _wanted(told: Document) -> Wanted:
    try:
        return results.wanted(told.get("interface"))
    except ValueError as error:
        raise Error(protocol.NOT_DECODED, str(error)) from error


def _plan(wanted: Wanted) -> Plan:
    try:
        is_bridge = wanted.type == "bridge"
        return bindings.plan(wanted, _observed(in_detail=is_bridge, takes_place=is_bridge and not wanted.network))
    except Unsupported as error:
        raise Error(protocol.INVALID_CONFIGURATION, str(error)) from error


def _observed(*, in_detail: bool, takes_place: bool = False) -> Observed:
    addresses = _asked("ip", "-json", "address", "show")
    found = binding.observe(addresses)
    if not in_detail:
        return found
    uplink = found.link(network.UPLINK)
    routes6 = _asked("ip", "-json", "-6", "route", "show") if uplink is not None and uplink.of_family(6) else []
    found = binding.observe(addresses, _asked("ip", "-json", "-4", "route", "show"), _asked("ip", "-json", "link", "show"), routes6)
    gateway = bridged.unknown_gateway(found) if takes_place else ""
    return dataclasses.replace(found, gateway6_mac=_neighbour(gateway, network.UPLINK)) if gateway else found


def _neighbour(address: str, device: str) -> str:
    _run("ip", "neighbour", "replace", address, "dev", device, "use")
    for _ in range(_NEIGHBOUR_LOOKS):
        found = _asked("ip", "-json", "neighbour", "show", address, "dev", device)
        if mac := next((each["lladdr"] for each in found if each.get("lladdr")), ""):
            return str(mac)
        time.sleep(_LOOK_SECONDS)
    raise _Failed(f"the pod's gateway {address} does not answer")


def _asked(*command: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(_run(*command) or "[]")
    return found


def _carry_out(plan: Plan) -> None:
    try:
        _run("sh", "-c", plan.script)
    except _Failed as error:
        if error.status == binding.NO_FILTER and filters.is_not_in_this_kernel(str(error)):
            has_ipv6 = plan.interface.lease6 is not None
            of_lease = filters.KERNEL_OPTIONS_BRIDGED if plan.interface.lease is not None else ()
            needed = ", ".join((*filters.KERNEL_OPTIONS, *plan.kernel_options, *of_lease, *(filters.KERNEL_OPTIONS6 if has_ipv6 else ())))
            raise Error(
                protocol.INVALID_CONFIGURATION, f"this node cannot keep a guest to its own addresses; its kernel needs {needed}: {error}"
            ) from error
        raise


class _Failed(Error):
    def __init__(self, message: str, status: int | None = None) -> None:
        super().__init__(protocol.INPUT_OUTPUT, message)
        self.status = status


def _run(*command: str) -> str:
    namespace = os.environ.get(protocol.NETNS_VARIABLE)
    if not namespace:
        raise Error(protocol.POD_UNKNOWN, f"{protocol.NETNS_VARIABLE} is not set")
    what = _name(command)
    try:
        done = subprocess.run(
            ("nsenter", f"--net={namespace}", "--", *command),
            check=False,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_SECONDS,
        )
    except OSError as error:
        raise _Failed(f"start {what}: {error}") from error
    except subprocess.TimeoutExpired as error:
        raise _Failed(f"{what} took longer than {_SECONDS:.0f} s") from error
    if done.returncode:
        raise _Failed(f"{what} failed ({done.returncode}): {done.stderr.strip()[-_BYTES:]}", done.returncode)
    return done.stdout


def _name(command: Sequence[str]) -> str:
    return " ".join(command).partition("\n")[0]


if __name__ == "__main__":
    sys.exit(main())
