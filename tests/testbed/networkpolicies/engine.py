"""Loads a node's NetworkPolicy rules whenever they change, in the node's network namespace.

Usage: ``python3 -m tests.testbed.networkpolicies.engine NODE [WORD…]``; further words only make the command line differ.
"""

import ssl
import subprocess
import sys
import threading
import time
from typing import Any

from tests.testbed import layout
from tests.testbed.networkpolicies import ruleset
from tests.testbed.networkpolicies.following import Follower

USER = "network-policies"
_GATHER_SECONDS = 0.02
_RETRY_SECONDS = 1.0


def main(node: str) -> None:
    context = ssl.create_default_context(cafile=str(layout.pki() / "ca.crt"))
    context.load_cert_chain(layout.pki() / f"{USER}.crt", layout.pki() / f"{USER}.key")
    server, changed = f"{layout.CONTROL_PLANE_ADDRESS}:{layout.APISERVER_PORT}", threading.Event()
    pods = Follower(server, context, "/api/v1/pods", ruleset.pod_of, changed)
    namespaces = Follower(server, context, "/api/v1/namespaces", _labels, changed)
    policies = Follower(server, context, "/apis/networking.k8s.io/v1/networkpolicies", _spec, changed)
    for each in (pods, namespaces, policies):
        threading.Thread(target=each.run, daemon=True).start()
    loaded = ""
    while changed.wait():
        time.sleep(_GATHER_SECONDS)
        changed.clear()
        if not (pods.known and namespaces.known and policies.known):
            continue
        wanted = ruleset.script(ruleset.Cluster(pods.found(), dict(namespaces.found()), policies.found()), node)
        if wanted != loaded:
            loaded = wanted if _load(wanted) else ""
            if not loaded:
                time.sleep(_RETRY_SECONDS)
                changed.set()


def _labels(namespace: Any) -> tuple[str, dict[str, str]]:
    return namespace["metadata"]["name"], namespace["metadata"].get("labels") or {}


def _spec(policy: Any) -> dict[str, Any]:
    metadata = {key: policy["metadata"][key] for key in ("namespace", "name")}
    return {"metadata": metadata, "spec": policy["spec"]}


def _load(script: str) -> bool:
    done = subprocess.run(["nft", "-f", "-"], input=script, text=True, capture_output=True, check=False)
    if done.returncode:
        print(f"nft: {done.stderr.strip()}\n{script}", flush=True)
    return not done.returncode


if __name__ == "__main__":
    main(sys.argv[1])
