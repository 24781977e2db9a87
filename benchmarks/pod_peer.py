"""``gauge`` in the network of a machine's pod: a peer that costs no emulation, and the processor time of the servers on the way to it."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from tests.cluster import processes
from tests.cluster.kube import ROOT, Kubectl
from tests.testbed import processes as testbed

PORT: Final = 5301
_SOURCE: Final = ROOT / "images/testguest/gauge.c"
_RULES: Final = f"""table ip bench {{
  chain arriving {{
    type nat hook prerouting priority -150; policy accept;
    tcp dport {PORT} redirect
  }}
  chain local {{
    type nat hook output priority -150; policy accept;
    ip daddr 127.0.0.1 tcp dport {PORT} redirect
  }}
}}
"""
"""Connections to this port go to the pod itself, before virt-handler's rules send them to the guest."""


@contextmanager
def serving(pod: dict[str, Any]) -> Iterator[None]:
    """Serve ``PORT`` of a masqueraded machine's pod by ``gauge``; its node must run on this computer. The pod's new nft rules stay."""
    in_pod = ("nsenter", f"--net=/proc/{min(processes.of_pod(pod))}/ns/net")
    with tempfile.TemporaryDirectory() as scratch:
        program = Path(scratch) / "gauge"
        subprocess.run(["gcc", "-O2", "-o", program, _SOURCE], check=True)
        subprocess.run([*in_pod, "nft", "-f", "-"], input=_RULES, text=True, check=True)
        with subprocess.Popen([*in_pod, program, "serve", str(PORT)], start_new_session=True) as process:
            try:
                yield
            finally:
                os.killpg(process.pid, signal.SIGKILL)


def servers(kubectl: Kubectl, node: str) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    if (server := testbed.find("kube-apiserver")) is not None:
        found["kube-apiserver"] = [server.pid]
    for name, only in (("virt-api", ""), ("virt-handler", f"spec.nodeName={node}")):
        pods = kubectl.json("get", "pods", "-A", "-l", f"kubevirt.io={name}", f"--field-selector={only}")["items"]
        found[name] = [pid for pod in pods for pid in processes.of_pod(pod)]
    return found


def seconds_of(pids: Mapping[str, list[int]]) -> dict[str, float]:
    return {name: sum(processes.processor_seconds(pid) for pid in each) for name, each in pids.items()}
