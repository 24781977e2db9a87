from __future__ import annotations

import json
import subprocess

import pytest
from kubernetes import config
from kubernetes.client import Configuration
from kubernetes.stream import ws_client

from apiserver.apis.virt.places.resources import VIRTUAL_MACHINES
from tests.clients import fabric8_client
from tests.cluster.kube import Kubectl
from tests.cluster.manifests import tiny_vm

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(660)]


def test_fabric8_watches_and_informs_of_machines(kubectl: Kubectl) -> None:
    command = fabric8_client.command(kubectl.namespace, json.dumps(tiny_vm("by-fabric8", runStrategy="Halted")))

    done = subprocess.run(command, env=kubectl.environment, capture_output=True, text=True, timeout=180, check=False)

    events = [f"{by} {event} by-fabric8" for by in ("informer", "watch") for event in ("ADDED", "DELETED", "MODIFIED")]
    assert (sorted(done.stdout.splitlines()), done.returncode) == (sorted(["listed 0", *events]), 0), done.stderr


def test_stream_of_pythons_kubernetes_client_is_a_console(kubectl: Kubectl, testguest: None) -> None:
    kubectl.api.apply(tiny_vm("by-python"))
    kubectl.api.ready("vm", "by-python", timeout=90)
    configuration = Configuration()
    config.load_kube_config(str(kubectl.kubeconfig), client_configuration=configuration)

    url = configuration.host + VIRTUAL_MACHINES.path(kubectl.namespace, "by-python", "console")
    stream = ws_client.websocket_call(configuration, "GET", url, headers={}, _preload_content=False)
    try:
        stream.sock.settimeout(60)
        shown = b""
        while b"GUEST-READY" not in shown:
            shown += stream.sock.recv()
    finally:
        stream.close()
