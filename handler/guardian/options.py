"""The flags of the guardian."""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from apiserver import logs
from apiserver.apis.virt import guards
from apiserver.apis.virt.places import deadlines


@dataclass(frozen=True, slots=True)
class Options:
    """The guardian's flags."""

    name: str
    namespace: str
    voters: tuple[str, ...]
    has_guests: bool
    virtual_nodes: bool
    pod_ip: str
    port: int
    directory: Path
    proc: Path
    kubeconfig: str | None
    log_level: str


def parse(arguments: Sequence[str] | None = None, environ: Mapping[str, str] = os.environ) -> Options:
    """Parse a command line; exits with status 2 and a message if it is invalid."""
    parser = argparse.ArgumentParser("virt-guardian", description="Promises when the guests of this node end, and ends them.")
    add = parser.add_argument
    add("--name", default=environ.get("NODE_NAME", ""), help="name of this node (NODE_NAME)")
    add("--lease-namespace", required=True, help="namespace of the Leases")
    add("--voters", default="", help=f"names of {guards.MIN_VOTERS} to {guards.MAX_VOTERS} guardians that vote, comma-separated")
    add("--guests", action=argparse.BooleanOptionalAction, default=True, help="whether guests run here; without, it only votes")
    add("--virtual-nodes", action="store_true", help="promise also on a virtual machine: while it is paused, its guests may run twice")
    add("--pod-ip", default=environ.get("POD_IP", ""), help="address for attestations (POD_IP)")
    add("--port", type=int, default=8446, help="port for attestations")
    add("--directory", type=Path, default=Path(deadlines.DIRECTORY), help="directory in memory for the deadlines of nodes")
    add("--proc", type=Path, default=Path("/proc"), help="the node's processes")
    add("--kubeconfig", default=environ.get("KUBECONFIG"), help="default: the pod's service account")
    logs.add_level_flag(add)
    given = parser.parse_args(arguments)
    voters = tuple(dict.fromkeys(each.strip() for each in given.voters.split(",") if each.strip()))
    if not given.name:
        parser.error("--name is required: the name of this node (set NODE_NAME from spec.nodeName)")
    if not guards.MIN_VOTERS <= len(voters) <= guards.MAX_VOTERS:
        parser.error(f"--voters needs {guards.MIN_VOTERS} to {guards.MAX_VOTERS} different names")
    return Options(
        name=given.name,
        namespace=given.lease_namespace,
        voters=voters,
        has_guests=given.guests,
        virtual_nodes=given.virtual_nodes,
        pod_ip=given.pod_ip,
        port=given.port,
        directory=given.directory,
        proc=given.proc,
        kubeconfig=given.kubeconfig,
        log_level=given.log_level,
    )
