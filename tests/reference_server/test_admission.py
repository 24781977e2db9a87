from __future__ import annotations

import base64
import json
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

import pytest

from tests.reference_server import environment, servers
from tests.reference_server.asking import Asker, normal
from tests.reference_server.certificates import HOST, Certificates
from tests.reference_server.comparing import differences
from tests.reference_server.environment import GROUP, Environment
from tests.reference_server.rows import APPLY, JSON_PATCH, Step, delete, flunder, patch, post, put

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

NAMESPACE: Final = "bench"
ENDING: Final = "ending"
"""A deleted namespace that its finalizer keeps."""
WISHES: Final = "wish.example.test/"
"""Prefix of annotations with a webhook's response, as JSON."""
REGISTRATION: Final = "admissionregistration.k8s.io/v1"


@dataclass
class Hooks:
    port: int = 0
    seen: list[Any] = field(default_factory=list)

    def take(self) -> list[Any]:
        """Return the reviews since the last call: mutating ones in order, then validating ones by path, because those are parallel."""
        seen, self.seen = self.seen, []
        return sorted(seen, key=lambda each: (each["path"].startswith("/v"), each["path"] if each["path"].startswith("/v") else ""))


@contextmanager
def hooks(made: Certificates) -> Iterator[Hooks]:
    known = Hooks()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            review = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            request = review["request"]
            known.seen.append({"path": self.path, "version": review["apiVersion"], "request": request})
            name = self.path.strip("/").partition("?")[0]
            obj = request["object"] or request["oldObject"] or {}
            wish = json.loads((obj.get("metadata", {}).get("annotations") or {}).get(WISHES + name, "{}"))
            response = {"uid": request["uid"], "allowed": True, **wish.get("response", {})}
            if operations := wish.get("patch"):
                response |= {"patchType": "JSONPatch", "patch": base64.b64encode(json.dumps(operations).encode()).decode()}
            body = json.dumps({"apiVersion": review["apiVersion"], "kind": "AdmissionReview", "response": response}).encode()
            self.send_response(wish.get("code", 200))
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(made.certificate("server"), made.key("server"))
    server = ThreadingHTTPServer((HOST, 0), Handler)
    server.daemon_threads = True
    server.socket = context.wrap_socket(server.socket, server_side=True)
    known.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield known
    finally:
        server.shutdown()
        server.server_close()


def configuration(kind: str, here: Environment, port: int, *given: dict[str, Any]) -> dict[str, Any]:
    bundle = base64.b64encode(here.certificates.authority.read_bytes()).decode()
    rule = {"operations": ["*"], "apiGroups": [GROUP], "apiVersions": ["v1alpha1"], "resources": ["*/*"]}
    whole = [
        {
            "clientConfig": {"url": f"https://{HOST}:{port}/{each['name'].partition('.')[0]}", "caBundle": bundle},
            "rules": [rule], "sideEffects": "None", "admissionReviewVersions": ["v1"], "timeoutSeconds": 9,
        } | each
        for each in given
    ]  # fmt: skip
    return {"apiVersion": REGISTRATION, "kind": kind, "metadata": {"name": kind.lower()}, "webhooks": whole}


@dataclass
class World:
    askers: tuple[Asker, Asker]
    known: Hooks

    def both(self, step: Step) -> list[Any]:
        results = []
        for asker in self.askers:
            answer = asker.ask(step, NAMESPACE, lambda text: text)
            results.append({"answer": [answer.code, answer.headers, answer.body], "asked": normal(json.dumps(self.known.take()))})
        return results


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with ExitStack() as stack:
        here = stack.enter_context(environment.environment(tmp_path_factory.mktemp("admission")))
        known = stack.enter_context(hooks(here.certificates))
        patched = {"name": "asked", "expression": "object != null && object.metadata.name == 'patched'"}
        again = {"reinvocationPolicy": "IfNeeded"}
        mutating = configuration(
            "MutatingWebhookConfiguration",
            here,
            known.port,
            {"name": "m1.example.test", **again},
            {"name": "m2.example.test"},
            {"name": "m3.example.test", "failurePolicy": "Ignore", "matchConditions": [patched]},
        )
        condition = {"name": "asked", "expression": "object != null && has(object.metadata.labels) && 'v3' in object.metadata.labels"}
        validating = configuration(
            "ValidatingWebhookConfiguration", here, known.port,
            {"name": "v1.example.test"},
            {"name": "v2.example.test", "failurePolicy": "Ignore", "objectSelector": {"matchLabels": {"v2": "yes"}}},
            {"name": "v3.example.test", "admissionReviewVersions": ["v1beta1"], "matchConditions": [condition]},
        )  # fmt: skip
        for plural, each in (("mutatingwebhookconfigurations", mutating), ("validatingwebhookconfigurations", validating)):
            here.ensure(f"/apis/{REGISTRATION}/{plural}", each)
        here.ensure("/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": ENDING}})
        here.call("DELETE", f"/api/v1/namespaces/{ENDING}")
        made = []
        for variant in (servers.REFERENCE_DEFAULT, servers.OURS_FLUNDERS):
            server = servers.Server(variant, here)
            stack.callback(server.end)
            server.start()
            made.append(Asker(server.port, here.certificates))
        whole = World((made[0], made[1]), known)
        deadline = time.monotonic() + 30
        probe = post(flunder("probe", metadata={"annotations": wish("v1", response={"allowed": False})}), "?dryRun=All")
        while any(each["answer"][0] != 400 for each in whole.both(probe)):
            assert time.monotonic() < deadline, whole.both(probe)
            time.sleep(0.1)
        yield whole


def wish(name: str, **answer: Any) -> dict[str, str]:
    return {WISHES + name: json.dumps(answer)}


def refused(**status: Any) -> dict[str, str]:
    return wish("v1", response={"allowed": False, **({"status": status} if status else {})})


def unapplicable(operation: Any, name: str = "m1") -> Step:
    coded = base64.b64encode(json.dumps(operation).encode()).decode()
    return post(wishing("patched", wish(name, response={"patchType": "JSONPatch", "patch": coded})), "?dryRun=All")


def wishing(name: str, annotations: dict[str, str], **metadata: Any) -> dict[str, Any]:
    return flunder(name, metadata={"annotations": annotations, **metadata})


REPLACED: Final = {"op": "replace", "path": "/metadata/labels", "value": {"a": "b"}}
LABEL: Final = {"op": "add", "path": "/metadata/labels", "value": {"a": "b"}}
MOVED: Final = {"op": "replace", "path": "/metadata/namespace", "value": ENDING}
ADDED: Final = {"op": "add", "path": "/metadata/namespace", "value": ENDING}
MOVED_AWAY: Final = {"op": "remove", "path": "/metadata/namespace"}
RENAMED: Final = {"op": "replace", "path": "/metadata/name", "value": "other"}
OWN: Final = {"uid": "mine", "creationTimestamp": "2020-01-01T00:00:00Z", "selfLink": "/mine"}
DETAILS: Final = {"name": "n", "kind": "k", "retryAfterSeconds": 3, "causes": [{"reason": "R", "message": "m", "field": "f"}]}

STEPS: Final = {
    "a creation": post(flunder("a"), "?fieldManager=me&fieldValidation=Strict"),
    "a dry run": post(flunder("dry"), "?dryRun=All"),
    "a generated name": post(flunder(metadata={"name": None, "generateName": "g-"})),
    "an update": put("a", flunder("a", spec={"reference": "s"})),
    "a merge patch": patch("a", {"spec": {"reference": "t"}}),
    "a JSON patch": patch("a", [{"op": "replace", "path": "/spec/reference", "value": "u"}], JSON_PATCH),
    "an apply that creates": patch("applied?fieldManager=me&force=true", json.dumps(flunder("applied")), APPLY),
    "an apply that updates": patch("applied?fieldManager=me", json.dumps(flunder("applied", spec={"reference": "v"})), APPLY),
    "a status": patch("a/status", {"status": {}, "metadata": {"annotations": {"x": "y"}}}),
    "a refusal": post(wishing("no", refused(message="no means no"))),
    "a refusal without a word": post(wishing("no", refused())),
    "a refusal with a reason": post(wishing("no", refused(reason="Forbidden"))),
    "a refusal with everything": post(wishing("no", refused(reason="Teapot", code=418, message="m", details=DETAILS))),
    "a refusal that is a success": post(wishing("no", refused(status="Success", code=200, message="m"))),
    "a refusal of a mutating webhook": post(wishing("no", wish("m2", response={"allowed": False, "status": {"message": "m"}}))),
    "warnings": post(wishing("w", wish("m1", response={"warnings": ["first", "second"]}) | wish("v1", response={"warnings": ["third"]}))),
    "a mutation": post(wishing("mutated", wish("m2", patch=[LABEL]))),
    "a mutation of what the other made": post(
        wishing("both", wish("m1", patch=[LABEL]) | wish("m2", patch=[{"op": "add", "path": "/metadata/labels/c", "value": "d"}]))
    ),
    # For m1: after m2, Go would call m1 again, because it drops the nanoseconds of managed fields.
    "a patch that does nothing": post(wishing("same", wish("m1", patch=[{"op": "test", "path": "/metadata/name", "value": "same"}]))),
    "a patch that fails": post(wishing("no", wish("m1", patch=[{"op": "remove", "path": "/nope"}]))),
    "a replacement of nothing": post(wishing("new", wish("m1", patch=[REPLACED]))),
    "a replacement in nothing": post(wishing("no", wish("m1", patch=[{"op": "replace", "path": "/nope/a", "value": 1}]))),
    "an addition to nothing": post(wishing("no", wish("m1", patch=[{"op": "add", "path": "/nope/a", "value": 1}]))),
    "a test that fails": post(wishing("no", wish("m1", patch=[{"op": "test", "path": "/metadata/name", "value": "yes"}]))),
    "another request's answer": post(wishing("no", wish("v1", response={"uid": "other"}))),
    "a patch by a validating webhook": post(wishing("no", wish("v1", patch=[LABEL]))),
    "a patch without a type": post(wishing("no", wish("m1", response={"patch": "W10="}))),
    "a type without a patch": post(wishing("no", wish("m1", response={"patchType": "JSONPatch"}))),
    "an error of the server": post(wishing("no", wish("v1", code=500))),
    "an absent page": post(wishing("no", wish("v1", code=404))),
    "a server that is busy": post(wishing("no", wish("v1", code=503))),
    "an error that is ignored": post(wishing("v2", wish("v2", code=500), labels={"v2": "yes"})),
    "the old version of reviews": post(wishing("v3", {}, labels={"v3": "yes"})),
    "a refusal in the old version": post(
        wishing("no", wish("v3", response={"allowed": False, "status": {"message": "old"}}), labels={"v3": "yes"})
    ),
    "a mutation that is invalid": post(
        wishing("no", wish("m1", patch=[{"op": "add", "path": "/metadata/labels", "value": {"a": "not a value!"}}]))
    ),
    "a mutation that moves what is created": post(wishing("no", wish("m1", patch=[MOVED]))),
    "a mutation that moves what is there": patch("a?dryRun=All", {"metadata": {"annotations": wish("m1", patch=[MOVED])}}),
    "a mutation that leaves the namespace out": post(wishing("no", wish("m1", patch=[MOVED_AWAY])), "?dryRun=All"),
    "an update that leaves the namespace out": patch("a?dryRun=All", {"metadata": {"annotations": wish("m1", patch=[MOVED_AWAY])}}),
    "a mutation that adds a namespace to what has none": Step(
        "POST",
        f"/apis/{GROUP}/v1alpha1/fischers?dryRun=All",
        {
            "apiVersion": f"{GROUP}/v1alpha1",
            "kind": "Fischer",
            "metadata": {"name": "f", "annotations": wish("m1", patch=[ADDED])},
        },
    ),
    "a mutation that names what is created": post(wishing("no", wish("m1", patch=[RENAMED])), "?dryRun=All"),
    "a mutation that renames what is there": patch("a?dryRun=All", {"metadata": {"annotations": wish("m1", patch=[RENAMED])}}),
    "a patch that is null": unapplicable(None),
    "a patch of null": unapplicable([None]),
    "a patch of no known operation": unapplicable([{"op": "conjure", "path": "/spec"}]),
    "a patch of no known operation, under Ignore": unapplicable([{"op": "conjure", "path": "/spec"}], "m3"),
    "a patch that does not apply, under Ignore": unapplicable([{"op": "remove", "path": "/nope"}], "m3"),
    "metadata of the client's own": post(flunder("own", metadata=OWN), "?dryRun=All&fieldValidation=Warn"),
    "an apply with metadata of its own": patch(
        "own?fieldManager=me&dryRun=All", json.dumps(flunder("own", metadata={"creationTimestamp": "2020-01-01T00:00:00Z"})), APPLY
    ),
    "an absent namespace": Step("POST", f"/apis/{GROUP}/v1alpha1/namespaces/nope/flunders", flunder("a")),
    "a namespace that ends": Step("POST", f"/apis/{GROUP}/v1alpha1/namespaces/{ENDING}/flunders", flunder("a")),
    "a name for later where the namespace ends": Step(
        "POST", f"/apis/{GROUP}/v1alpha1/namespaces/{ENDING}/flunders", flunder(metadata={"name": None, "generateName": "g-"})
    ),
    "a deletion without grace": delete("a?dryRun=All", {"gracePeriodSeconds": 0, "preconditions": {}}),
    "a deletion with grace": delete("a?dryRun=All&gracePeriodSeconds=5"),
    "the deletion of many": Step("DELETE", "?dryRun=All&labelSelector=a%3Db"),
    "a deletion": delete("a", {"propagationPolicy": "Background"}),
    "a deletion that is refused": delete("w?dryRun=All"),
    "the deletion of what wants to stay": put("mutated", wishing("mutated", {})),
}  # fmt: skip


@pytest.mark.parametrize("name", STEPS)
def test_webhooks_are_asked_and_heard_as_by_the_reference_server(name: str, world: World) -> None:
    reference, ours = world.both(STEPS[name])
    _level(reference, ours)
    found = [str(each) for each in differences(reference, ours)]
    assert not found, "\n" + "\n".join(found)


def _level(reference: Any, ours: Any) -> None:
    for own, theirs in zip(ours["asked"], reference["asked"], strict=False):
        for obj, other in ((own["request"].get("object"), theirs["request"].get("object")),):
            if obj and other and "creationTimestamp" not in other["metadata"] and own["request"]["operation"] == "UPDATE":
                obj["metadata"].pop("creationTimestamp", None)  # fields that a client omits are restored before webhooks are called
        if own["request"]["operation"] == "DELETE" and "name" not in theirs["request"]:
            del own["request"]["name"]  # Go does not name the reviewed one of many: docs/differences.md
