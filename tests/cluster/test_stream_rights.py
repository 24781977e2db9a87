from __future__ import annotations

import asyncio
import ssl
import time
from typing import Final

import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus
from websockets.typing import Origin, Subprotocol

from apiserver.apis.virt.places import streams
from apiserver.apis.virt.places.resources import VIRTUAL_MACHINES
from apiserver.kubectl import access
from apiserver.kubectl.access import Access, Selection
from tests.cluster.guests import answers
from tests.cluster.kube import Kubectl, console, eventually, forwarded
from tests.cluster.manifests import tiny_vm

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

VM: Final = "watched"
EVIL: Final = "https://evil.example"
BROWSER: Final = ("Sec-Fetch-Site", "cross-site")


def bind(kubectl: Kubectl, user: str, kind: str, role: str) -> None:
    kubectl.api.apply(
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "RoleBinding",
            "metadata": {"name": user},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": role},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}],
        }
    )


@pytest.fixture(scope="module")
def machine(kubectl: Kubectl, testguest: None) -> Kubectl:
    del testguest
    rules = [{"apiGroups": ["kubevirt.io"], "resources": ["*"], "verbs": ["get", "list", "watch"]}]
    role = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": "read-everything"}, "rules": rules}
    kubectl.api.apply(tiny_vm(VM), role)
    bind(kubectl, "viewer", "ClusterRole", "view")
    bind(kubectl, "reader", "Role", "read-everything")
    bind(kubectl, "editor", "ClusterRole", "edit")
    kubectl.api.ready("vm", VM, timeout=90)
    return kubectl


def is_forbidden(machine: Kubectl, user: str, verb: str, stream: str) -> None:
    assert VM in machine("get", "vms", "--as", user)
    more = ["--proxy-only"] if stream in ("vnc", "spice") else []

    command = {"portforward": ("port-forward", VM, ":22")}.get(stream, (stream, VM))

    done = machine.try_run("virt", *command, "--as", user, *more, stdin="")

    assert done.returncode == 1
    assert "Error from server (Forbidden)" in done.stderr
    assert f'User "{user}" cannot {verb} resource "virtualmachines/{stream}" in API group "kubevirt.io"' in done.stderr


@pytest.mark.parametrize(("user", "verb", "stream"), [("viewer", "get", "console"), ("reader", "create", "vnc")])
def test_read_only_users_get_neither_console_nor_screen(machine: Kubectl, user: str, verb: str, stream: str) -> None:
    is_forbidden(machine, user, verb, stream)


def test_console_ends_within_a_minute_of_losing_its_right(machine: Kubectl) -> None:
    bind(machine, "leaver", "ClusterRole", "edit")
    with console(machine, VM, "--as", "editor") as other, console(machine, VM, "--as", "leaver") as guest:
        guest.expect("GUEST-READY", timeout=120)
        answers(guest)
        machine.api.delete("rolebindings", "leaver")
        withdrawn = time.monotonic()

        guest.expect(r"the console of watched was closed: your permission to (get|create) virtualmachines/console was revoked", timeout=60)

        assert guest.process.wait(timeout=60) == 1
        assert time.monotonic() - withdrawn < 60
        other.expect("GUEST-READY")
        answers(other)


def way(kubectl: Kubectl) -> Access:
    return asyncio.run(access.load(Selection(kubeconfig=str(kubectl.kubeconfig), namespace=kubectl.namespace)))


def dial(url: str, tls: ssl.SSLContext | None, headers: list[tuple[str, str]], origin: str | None) -> int:
    return asyncio.run(_dial("ws" + url.removeprefix("http"), tls, headers, origin))


async def _dial(address: str, tls: ssl.SSLContext | None, headers: list[tuple[str, str]], origin: str | None) -> int:
    # The threaded client reads and writes concurrently, but Python's SSL objects are not thread-safe: with TLS 1.3 session tickets one
    # request in a hundred was lost.
    page = Origin(origin) if origin is not None else None
    offered = [Subprotocol(streams.SUBPROTOCOL)]
    try:
        async with connect(address, ssl=tls, origin=page, additional_headers=headers, subprotocols=offered, proxy=None, open_timeout=60):
            return 101
    except InvalidStatus as refused:
        named = b"--cors-allowed-origins" in bytes(refused.response.body or b"")
        return refused.response.status_code if named else -refused.response.status_code


def test_cross_origin_pages_get_no_console_by_kube_apiserver(machine: Kubectl) -> None:
    here = way(machine)
    url = here.server + VIRTUAL_MACHINES.path(machine.namespace, VM, "console")

    # Tenants can serve pages from kube-apiserver's address (services/…/proxy), so it must be listed as well.
    for origin in (EVIL, "null", here.server, "http://localhost:8001"):
        assert dial(url, here.tls, [*here.headers, BROWSER], origin) == 403, origin
        assert dial(url, here.tls, list(here.headers), origin) == 101, origin
    assert dial(url, here.tls, list(here.headers), None) == 101


def test_pages_of_virt_apis_own_address_get_a_console(machine: Kubectl, system: Kubectl) -> None:
    machine.api.create({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "direct"}})
    bind(machine, f"system:serviceaccount:{machine.namespace}:direct", "ClusterRole", "edit")
    token = machine.api.token("direct")
    tls = ssl.create_default_context()
    tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE

    def ask(origin: str) -> int:
        # kubectl port-forward ends when a stream is abandoned.
        with forwarded(system, "service/virt-api", 443) as port:
            own = f"https://127.0.0.1:{port}"
            url = own + VIRTUAL_MACHINES.path(machine.namespace, VM, "console")
            return dial(url, tls, [("Authorization", f"Bearer {token}"), BROWSER], origin or own)

    eventually(lambda: ask("") == 101, timeout=60, what="a console for a page of virt-api's own address")
    assert ask(EVIL) == 403
