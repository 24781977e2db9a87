#!/usr/bin/env python3
"""A private network for guests of one node: a plugin for interfaces (docs/plugins.md).

::

    guest ── tap ── bridge in the pod ── veth ── bridge of the node, which has no other ports ── veth ── the next guest's pod

It needs only ``ip`` and ``nft``, and its only state is links: existing ones stay unchanged, and missing ones are no error.
"""

import fcntl
import hashlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

VERSION = "1.0.0"
LOCK = Path("/tmp/isolated.lock")  # noqa: S108 - in virt-handler's own container


class PluginError(Exception):
    """An error with its code."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


def run(netns: str, *command: str, stdin: str | None = None) -> str:
    """Run a program in a network namespace; return its output, or raise PluginError."""
    words = ["nsenter", f"--net={netns}", "--", *command]
    done = subprocess.run(words, input=stdin, capture_output=True, text=True, check=False)
    if done.returncode:
        raise PluginError(5, f"{' '.join(command[:4])}: {done.stderr.strip()[-300:]}")
    return done.stdout


def links(netns: str, *selection: str) -> set[str]:
    """Return the names of a namespace's links; ``selection``: words for ``ip link show``."""
    return {each["ifname"] for each in json.loads(run(netns, "ip", "-json", "link", "show", *selection) or "[]")}


def short(prefix: str, *words: str) -> str:
    """Return a link's name derived from ``words``, with this prefix and ten hexadecimal digits."""
    return prefix + hashlib.sha256("\0".join(words).encode()).hexdigest()[:10]


class Network:
    """Names of the links of one guest interface. Raises PluginError for invalid options."""

    def __init__(self, request: dict[str, Any]) -> None:
        self.interface = request["interface"]
        options = self.interface["options"]
        if unknown := sorted(options.keys() - {"segment"}):
            raise PluginError(7, f"unknown option {unknown[0]}; there is segment")
        self.segment = options.get("segment", "default")
        if not re.fullmatch("[a-z0-9-]{1,63}", self.segment):
            raise PluginError(7, "option segment: must be 1 to 63 of a-z, 0-9 and -")
        self.node_bridge = short("iso", request["machine"]["namespace"], self.segment)
        self.node_link = short("isv", request["pod"]["uid"], self.interface["name"])
        self.pod_link, self.bridge, self.tap = (self.interface[each] for each in ("uplink", "bridge", "tap"))


RULES = """table netdev {tap} {{}}
delete table netdev {tap}
table netdev {tap} {{
  chain guest {{
    type filter hook ingress device "{tap}" priority -500; policy accept;
    ether saddr != {mac} drop
  }}
  chain pod {{
    type filter hook ingress device "{bridge}" priority -500; policy drop;
  }}
}}
"""
"""Allow only the guest's own MAC address, and keep the pod off the network."""


def add(request: dict[str, Any], pod: str, node: str) -> dict[str, Any]:
    """Create the guest's tap, and bridge it to the node's bridge of its network; return tap and MAC address. May be repeated.

    ``pod`` and ``node``: their network namespaces. Raises PluginError.
    """
    network = Network(request)
    mac, queues = network.interface["mac"], network.interface["queues"]
    make_bridge(node, network.node_bridge)
    if network.pod_link not in links(pod):
        run(pod, "ip", "link", "add", network.pod_link, "type", "veth", "peer", "name", network.node_link, "netns", node)
    run(node, "ip", "link", "set", network.node_link, "master", network.node_bridge, "up")
    make_bridge(pod, network.bridge)
    if network.tap not in links(pod):
        several = ["multi_queue"] if queues > 1 else []
        user = str(request["user"])
        run(pod, "ip", "tuntap", "add", "dev", network.tap, "mode", "tap", "user", user, "group", user, *several)
    run(pod, "nft", "-f", "-", stdin=RULES.format(tap=network.tap, bridge=network.bridge, mac=mac))
    for link in (network.pod_link, network.tap):
        run(pod, "ip", "link", "set", link, "master", network.bridge, "up")
    return {"tap": network.tap, "mac": mac, "addresses": []}


def make_bridge(netns: str, name: str) -> None:
    """Create a bridge without IPv6 addresses, unless it exists, and set it up."""
    if name not in links(netns):
        run(netns, "ip", "link", "add", name, "type", "bridge", "stp_state", "0", "forward_delay", "0")
    run(netns, "sh", "-c", f"[ ! -d /proc/sys/net/ipv6 ] || echo 1 >/proc/sys/net/ipv6/conf/{name}/disable_ipv6")
    run(netns, "ip", "link", "set", name, "up")


def check(request: dict[str, Any], pod: str, node: str) -> dict[str, Any]:
    """Return an empty result, or raise PluginError if a link is missing or misplaced."""
    network = Network(request)
    if missing := {network.tap, network.bridge, network.pod_link} - links(pod):
        raise PluginError(100, f"the pod has lost {', '.join(sorted(missing))}")
    if network.node_link not in links(node, "master", network.node_bridge):
        raise PluginError(100, f"{network.node_link} is on bridge {network.node_bridge} of the node no more")
    return {}


def delete(request: dict[str, Any], pod: str, node: str) -> dict[str, Any]:
    """Remove the guest's links, and the node's bridge after the last guest; the pod may be gone."""
    try:
        network = Network(request)
    except PluginError:  # ADD refused the request
        return {}
    if network.node_link in links(node):
        run(node, "ip", "link", "delete", network.node_link)  # and its other end
    if network.node_bridge in links(node) and not links(node, "master", network.node_bridge):
        run(node, "ip", "link", "delete", network.node_bridge)
    for link in (network.tap, network.bridge):
        if pod and link in links(pod):
            run(pod, "ip", "link", "delete", link)
    return {}


def answer(command: str) -> dict[str, Any]:
    """Execute a command with the request on standard input; return its result, or raise PluginError."""
    try:
        request = json.load(sys.stdin)
    except ValueError as error:
        raise PluginError(6, f"standard input is not valid JSON: {error}") from error
    if command == "VERSION":
        return {"supportedVersions": [VERSION], "kinds": ["network"], "liveMigration": False}
    if request.get("version") != VERSION:
        raise PluginError(1, f"speaks version {VERSION} alone")
    operation = {"ADD": add, "CHECK": check, "DEL": delete}.get(command)
    if operation is None:
        raise PluginError(2, f"unknown command {command}")
    with LOCK.open("w") as lock:  # another guest may be connecting to this bridge
        fcntl.flock(lock, fcntl.LOCK_EX)
        return operation(request, os.environ.get("KUBEVIRT_NETNS", ""), os.environ["KUBEVIRT_NODE_NETNS"])


def main() -> int:
    """Print the result of ``KUBEVIRT_COMMAND``, or its error; return the exit status, 1 after an error."""
    try:
        result, status = answer(os.environ["KUBEVIRT_COMMAND"]), 0
    except PluginError as error:
        result, status = {"code": error.code, "msg": str(error)}, 1
    json.dump({"version": VERSION, **result}, sys.stdout)
    return status


if __name__ == "__main__":
    sys.exit(main())
