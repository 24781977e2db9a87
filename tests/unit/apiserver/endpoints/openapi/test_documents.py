from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, get_args

import pytest
from openapi_spec_validator import OpenAPIV2SpecValidator, OpenAPIV30SpecValidator

from apiserver.apis.core.resources import CONFIG_MAPS
from apiserver.apis.meta import strategic_patch
from apiserver.apis.virt.places.streams import Stream
from apiserver.client.config import Config
from apiserver.client.informer import Informer
from apiserver.client.rest import Client
from apiserver.endpoints.openapi import metatypes, version2, version3
from apiserver.endpoints.openapi.descriptions import Described
from apiserver.registry.virt.migration_policies import MigrationPolicyStrategy
from apiserver.registry.virt.migrations import MigrationStrategy
from apiserver.registry.virt.replica_sets import ReplicaSetStrategy
from apiserver.registry.virt.revoking import RevokedNodes
from apiserver.registry.virt.streams import HandlerStream
from apiserver.registry.virt.virtualmachines import VirtualMachineStrategy

VM = "io.kubevirt.v1alpha1.VirtualMachine"


def _described() -> list[Described]:
    async def locate(_: str) -> tuple[str, int]:
        raise AssertionError

    def tls() -> Any:
        raise AssertionError

    revoked = RevokedNodes(Informer(Client(Config("http://127.0.0.1:1"), user_agent="test"), CONFIG_MAPS))
    streams = {each: HandlerStream(each, locate, tls, revoked) for each in get_args(Stream)}
    strategies = VirtualMachineStrategy(streams), MigrationStrategy(), MigrationPolicyStrategy(), ReplicaSetStrategy()
    return [Described.of(each) for each in strategies]


V3 = version3.build(_described(), title="virt-api", version="v1")
V2 = version2.convert([V3], title="virt-api", version="v1")
SCHEMAS: dict[str, Any] = V3["components"]["schemas"]


def _walk(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict):
        yield value
        for each in value.values():
            yield from _walk(each)
    elif isinstance(value, list):
        for each in value:
            yield from _walk(each)


def _operations(document: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield path, method, operation


def test_the_documents_are_valid_openapi() -> None:
    assert [str(each) for each in OpenAPIV30SpecValidator(V3).iter_errors()] == []
    # The validator ignores siblings next to $ref, as in Kubernetes
    assert [str(each) for each in OpenAPIV2SpecValidator(V2).iter_errors()] == []


def test_every_reference_leads_somewhere() -> None:
    for document, prefix, known in ((V3, metatypes.REF, SCHEMAS), (V2, "#/definitions/", V2["definitions"])):
        references = {each["$ref"] for each in _walk(document) if "$ref" in each}
        assert references
        assert {each.removeprefix(prefix) for each in references} <= set(known)


def test_schemas_are_structural() -> None:
    forbidden = {"$defs", "anyOf", "const", "title", "x-meta", "nullable", "exclusiveMinimum", "exclusiveMaximum"}
    for name, schema in SCHEMAS.items():
        for each in _walk(schema):
            if "properties" not in each or "type" in each:
                assert not forbidden & set(each), (name, each)
    assert metatypes.PREFIX + "Quantity" in SCHEMAS
    assert SCHEMAS["io.kubevirt.v1alpha1.Memory"]["properties"]["guest"]["allOf"] == [metatypes.ref("Quantity")]


def test_an_integer_or_string_is_published_as_kubernetes_does() -> None:
    field = SCHEMAS["io.kubevirt.v1alpha1.RollingUpdate"]["properties"]["maxUnavailable"]
    assert field["allOf"] == [metatypes.ref("IntOrString")]
    published = V2["definitions"][metatypes.PREFIX + "IntOrString"]
    assert (published["type"], published["format"]) == ("string", "int-or-string")


def test_every_field_says_what_it_is() -> None:
    for name, schema in SCHEMAS.items():
        assert schema.get("description"), name
        for field, each in (schema.get("properties") or {}).items():
            assert each.get("description"), f"{name}.{field}"


def test_every_list_says_how_it_merges() -> None:
    for name, schema in SCHEMAS.items():
        for field, each in (schema.get("properties") or {}).items():
            if each.get("type") == "array" and name.startswith("io.kubevirt.v1alpha1.") and field != "items":
                assert each.get("x-kubernetes-list-type") in ("atomic", "set", "map"), f"{name}.{field}"


def test_each_kind_is_found_by_its_group_version_kind() -> None:
    kinds = {each["kind"]: name for name, schema in SCHEMAS.items() for each in schema.get("x-kubernetes-group-version-kind", ())}
    assert kinds == {
        "VirtualMachine": VM,
        "VirtualMachineList": f"{VM}List",
        "Migration": "io.kubevirt.v1alpha1.Migration",
        "MigrationList": "io.kubevirt.v1alpha1.MigrationList",
        "MigrationPolicy": "io.kubevirt.v1alpha1.MigrationPolicy",
        "MigrationPolicyList": "io.kubevirt.v1alpha1.MigrationPolicyList",
        "VirtualMachineReplicaSet": "io.kubevirt.v1alpha1.VirtualMachineReplicaSet",
        "VirtualMachineReplicaSetList": "io.kubevirt.v1alpha1.VirtualMachineReplicaSetList",
        "Scale": metatypes.PREFIX + "Scale",
    }


def test_fields_have_the_names_of_the_api() -> None:
    status = SCHEMAS["io.kubevirt.v1alpha1.VirtualMachineStatus"]["properties"]
    assert {"podUID", "podIP", "observedGeneration", "phaseTransitionTimestamps", "attempts"} <= set(status)
    assert {"ipAddress", "ipAddresses"} <= set(SCHEMAS["io.kubevirt.v1alpha1.InterfaceStatus"]["properties"])
    assert "targetPodUID" in SCHEMAS["io.kubevirt.v1alpha1.MigrationStatus"]["properties"]
    assert status["conditions"]["x-kubernetes-list-map-keys"] == ["type"]
    assert SCHEMAS[VM]["required"] == ["spec"]
    assert SCHEMAS["io.kubevirt.v1alpha1.Console"]["properties"]["type"]["enum"] == ["pty"]


def test_operations_have_unique_ids_of_gos_scheme() -> None:
    for document in (V3, V2):
        identifiers = [operation["operationId"] for _, _, operation in _operations(document)]
        assert len(identifiers) == len(set(identifiers))
        assert {
            "listKubevirtIoV1alpha1NamespacedVirtualMachine",
            "readKubevirtIoV1alpha1NamespacedVirtualMachineStatus",
            "connectKubevirtIoV1alpha1GetNamespacedVirtualMachineConsole",
            "listKubevirtIoV1alpha1MigrationForAllNamespaces",
            "deleteKubevirtIoV1alpha1CollectionNamespacedMigration",
            "getKubevirtIoV1alpha1APIResources",
        } <= set(identifiers)
    assert {tuple(operation["tags"]) for _, _, operation in _operations(V3)} == {("kubevirtIo_v1alpha1",)}


def test_deletions_declare_that_they_can_be_forced() -> None:
    for document in (V3, V2):
        for path, method, operation in _operations(document):
            if method == "delete":
                names = {each.get("name") for each in operation["parameters"]}
                assert "ignoreStoreReadErrorWithClusterBreakingPotential" in names, path


def test_every_operation_on_a_resource_says_its_action_and_kind() -> None:
    for path, method, operation in _operations(V3):
        if path == "/apis/kubevirt.io/v1alpha1/":
            continue
        group = "autoscaling" if path.endswith("/scale") else "kubevirt.io"
        assert operation["x-kubernetes-group-version-kind"]["group"] == group
        assert operation["x-kubernetes-action"] in ("get", "list", "post", "put", "patch", "delete", "deletecollection", "connect"), method
        declared = {each["name"] for each in operation["parameters"] if each["in"] == "path"}
        assert declared == set(re.findall(r"{(\w+)}", path))


def test_kubectl_finds_what_it_looks_for() -> None:
    one = V3["paths"]["/apis/kubevirt.io/v1alpha1/namespaces/{namespace}/virtualmachines/{name}"]
    names = {each["name"] for each in one["patch"]["parameters"]}
    assert {"dryRun", "fieldManager", "fieldValidation", "force"} <= names
    assert list(one["patch"]["requestBody"]["content"]) == list(version3.PATCH_TYPES)
    migrate = V3["paths"]["/apis/kubevirt.io/v1alpha1/namespaces/{namespace}/virtualmachines/{name}/migrate"]["post"]
    assert migrate["x-kubernetes-group-version-kind"]["kind"] == "Migration"
    assert "101" in V3["paths"]["/apis/kubevirt.io/v1alpha1/namespaces/{namespace}/virtualmachines/{name}/console"]["get"]["responses"]


def test_stream_query_parameters_are_documented() -> None:
    one = "/apis/kubevirt.io/v1alpha1/namespaces/{namespace}/virtualmachines/{name}"
    for document in (V3, V2):
        asked = {
            stream: {each["name"] for each in document["paths"][f"{one}/{stream}"]["get"]["parameters"] if each["in"] == "query"}
            for stream in get_args(Stream)
            if stream != "portforward"
        }
        assert asked == {"console": {"port"}, "vnc": set(), "spice": set(), "usbredir": {"slot"}, "log": {"port", "follow"}}
    (port,) = (each for each in V3["paths"][f"{one}/console"]["get"]["parameters"] if each["in"] == "query")
    assert port["schema"] == {"type": "integer", "uniqueItems": True}
    assert not port.get("required")
    assert "from 0 to 3" in port["description"]


def test_path_parameters_of_a_stream_are_documented() -> None:
    one = "/apis/kubevirt.io/v1alpha1/namespaces/{namespace}/virtualmachines/{name}/portforward"
    for document in (V3, V2):
        assert {path.removeprefix(one) for path in document["paths"] if path.startswith(one)} == {"/{port}", "/{port}/{protocol}"}
        named = [each["name"] for each in document["paths"][f"{one}/{{port}}/{{protocol}}"]["get"]["parameters"] if each["in"] == "path"]
        assert sorted(named) == ["name", "namespace", "port", "protocol"]


def test_the_published_schema_is_what_patches_follow() -> None:
    shape = version3.shape(V3, _described()[0])
    document = {
        "metadata": {"ownerReferences": [{"uid": "1"}, {"uid": "2"}], "finalizers": ["a/b"]},
        "spec": {"domain": {"devices": {"disks": [{"name": "a"}, {"name": "b"}]}}},
        "status": {"conditions": [{"type": "Ready", "status": "True"}, {"type": "Paused", "status": "False"}]},
    }
    patch = {
        "metadata": {"ownerReferences": [{"$patch": "delete", "uid": "1"}], "finalizers": ["c/d"]},
        "spec": {"domain": {"devices": {"disks": [{"type": "Image"}]}}},
        "status": {"conditions": [{"type": "Ready", "status": "False"}]},
    }
    assert strategic_patch.apply(document, patch, shape) == {
        "metadata": {"ownerReferences": [{"uid": "2"}], "finalizers": ["c/d", "a/b"]},
        "spec": {"domain": {"devices": {"disks": [{"type": "Image"}]}}},
        "status": {"conditions": [{"type": "Ready", "status": "False"}, {"type": "Paused", "status": "False"}]},
    }


def test_alternatives_cannot_be_published() -> None:
    from apiserver.endpoints.openapi import schemas

    with pytest.raises(ValueError, match="no alternatives"):
        schemas.structural({"anyOf": [{"type": "string"}, {"type": "integer"}]}, str)


def test_oas_04_definitions_are_ours_and_all_used() -> None:
    used = {each["$ref"].removeprefix("#/definitions/") for each in _walk(V2) if "$ref" in each}
    assert set(V2["definitions"]) == used
    assert all(name.startswith("io.kubevirt.") for name in V2["definitions"])
    assert all(path.startswith("/apis/kubevirt.io/v1alpha1/") for path in V2["paths"])
