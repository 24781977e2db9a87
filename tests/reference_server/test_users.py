from __future__ import annotations

import http.client
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any, Final

import pytest

from tests.reference_server import environment, servers
from tests.reference_server.asking import Answer, Asker
from tests.reference_server.certificates import READER, STRANGER, USER, Certificates
from tests.reference_server.comparing import judge
from tests.reference_server.environment import GROUP, Environment
from tests.reference_server.rows import APPLY, JSON_PATCH, WORDS, Step, delete, flunder, get, patch, post, put

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

NAMESPACE: Final = "bench"
ELSEWHERE: Final = f"/apis/{GROUP}/v1alpha1/namespaces/many/flunders"
EVERYWHERE: Final = f"/apis/{GROUP}/v1alpha1/flunders"
NOBODY: Final = ""
RBAC: Final = "rbac.authorization.k8s.io/v1"
GO_TYPES: Final = "Go says it with the types of its program"
MAY_IMPERSONATE: Final = {"Impersonate-User": "somebody", "Impersonate-Group": "testers"}
STEPS: Final = (
    get(),
    get("f1"),
    get("absent"),
    get("?labelSelector=a%3Db"),
    get("?watch=1&timeoutSeconds=1&resourceVersion=0&fieldSelector=metadata.name%3Dabsent"),
    get(ELSEWHERE),
    get(f"{ELSEWHERE}/absent"),
    get(EVERYWHERE),
    post(flunder("f1")),
    post(flunder(None, metadata={"generateName": "g-"})),
    post(flunder("f1"), "?dryRun=All"),
    put("f1", flunder("f1", metadata={"labels": {"a": "b"}})),
    put("f1/status", flunder("f1")),
    patch("f1", {"metadata": {"labels": {"a": "c"}}}),
    patch("f1", [{"op": "test", "path": "/metadata/name", "value": "f1"}], JSON_PATCH),
    patch("f2?fieldManager=m", {**flunder("f2"), "spec": {}}, APPLY),
    patch("f1/status", {"status": {}}),
    post("{", differs=WORDS),  # unauthorized users do not learn what is wrong with it
    get("f1/nope"),
    delete("absent"),
    delete("?labelSelector=a%3Dnone"),
    get("", headers={"Impersonate-User": "admin", "Impersonate-Group": "system:masters"}),
    get("", headers=MAY_IMPERSONATE),
    get("", headers={"Impersonate-Group": "testers"}, differs=GO_TYPES),
    delete("f1"),
)
CODES: Final = tuple(
    get(path)
    for path in (
        "/",
        "/apis",
        f"/apis/{GROUP}",
        "/version",
        "/healthz",
        "/livez",
        "/readyz",
        "/metrics",
        "/openapi/v2",
        "/openapi/v3",
        "/nope",
    )
)
"""Special pages: only access and refusals are compared."""


@dataclass(frozen=True)
class Both:
    ports: tuple[int, int]
    certificates: Certificates

    def ask(self, step: Step, user: str) -> tuple[Answer, Answer]:
        reference, ours = (Asker(port, self.certificates, user).ask(step, NAMESPACE, lambda text: text) for port in self.ports)
        return reference, ours


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Both]:
    with ExitStack() as stack:
        here = stack.enter_context(environment.environment(tmp_path_factory.mktemp("users")))
        _allow(here)
        ports = []
        for variant in (servers.REFERENCE_DEFAULT, servers.OURS_FLUNDERS):
            server = servers.Server(variant, here)
            stack.callback(server.end)
            server.start()
            ports.append(server.port)
        yield Both((ports[0], ports[1]), here.certificates)


def _allow(here: Environment) -> None:
    rules = [{"apiGroups": [GROUP], "resources": ["flunders"], "verbs": ["get", "list", "watch"]}]
    _grant(here, "Role", f"/apis/{RBAC}/namespaces/{NAMESPACE}", READER, {"kind": "Group", "name": "readers"}, rules)
    rules = [
        {"apiGroups": [""], "resources": ["users"], "verbs": ["impersonate"], "resourceNames": ["somebody"]},
        {"apiGroups": [""], "resources": ["groups"], "verbs": ["impersonate"], "resourceNames": ["testers"]},
    ]
    _grant(here, "ClusterRole", f"/apis/{RBAC}", "speaks-for-somebody", {"kind": "User", "name": USER}, rules)


def _grant(here: Environment, kind: str, path: str, name: str, subject: dict[str, str], rules: list[dict[str, Any]]) -> None:
    plural = f"{kind.lower()}s"
    here.ensure(f"{path}/{plural}", {"apiVersion": RBAC, "kind": kind, "metadata": {"name": name}, "rules": rules})
    binding = {
        "apiVersion": RBAC,
        "kind": f"{kind}Binding",
        "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", **subject}],
    }
    here.ensure(f"{path}/{kind.lower()}bindings", binding)


@pytest.mark.sample(2, "users of the reference server")
@pytest.mark.parametrize("user", [USER, READER, STRANGER, NOBODY], ids=["user", "reader", "stranger", "nobody"])
def test_a_user_is_let_do_and_refused_the_same_in_the_same_words(both: Both, user: str) -> None:
    found, codes = [], set()
    for step in STEPS:
        reference, ours = both.ask(step, user)
        codes.add(reference.code)
        refused = reference.code == http.client.FORBIDDEN
        found += [f"{step.method} {step.path}: {wrong}" for wrong in judge(replace(step, differs="") if refused else step, reference, ours)]
    for step in CODES:
        reference, ours = both.ask(step, user)
        if ours.code != http.client.OK or reference.code != http.client.OK:
            found += [f"{step.method} {step.path}: {wrong}" for wrong in judge(step, reference, ours)]
    assert not found, "\n" + "\n".join(found)
    assert 403 in codes
    assert (200 in codes) is (user in (USER, READER))
