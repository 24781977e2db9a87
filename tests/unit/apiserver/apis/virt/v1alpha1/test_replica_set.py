from __future__ import annotations

import re
from copy import deepcopy
from datetime import UTC, datetime
from typing import Any

import pytest

from apiserver.apis.meta import errors
from apiserver.apis.meta.objects import HubObject, Object
from apiserver.apis.virt import structure
from apiserver.apis.virt.lifecycle.replica_sets import REPLICATE
from apiserver.apis.virt.places.resources import REPLICA_SETS
from apiserver.apis.virt.v1alpha1.allowed import Allowed
from apiserver.registry.generic.planning import Planner
from apiserver.registry.generic.strategy import NOTHING_WRONG, CreatingVerb
from apiserver.registry.virt.replica_sets import ReplicaSetStrategy
from apiserver.registry.virt.virtualmachines import VirtualMachineStrategy
from tests.clients import kstatus

NOW = datetime(2026, 11, 29, tzinfo=UTC)
LABELS = {"app": "web"}
DOMAIN = {"memory": {"guest": "64Mi"}}


def a_set(name: str = "web", *, domain: Object = DOMAIN, labels: Object = LABELS, **spec: Any) -> Object:
    template = {"metadata": {"labels": labels, "creationTimestamp": None}, "spec": {"domain": domain}}
    return {
        "metadata": {"name": name, "namespace": "ns", "uid": "u"},
        "spec": {"selector": {"matchLabels": LABELS}, "template": template, **spec},
    }


def read(obj: Object) -> Object:
    strategy, given = ReplicaSetStrategy(), deepcopy(obj)
    assert strategy.read(given) == NOTHING_WRONG
    strategy.default(given)
    return given


def faults(obj: Object) -> list[str]:
    return [f"{each.path}: {each.body}" for each in ReplicaSetStrategy().validate(read(obj))]


def test_defaults_are_those_of_a_set_and_of_a_machine() -> None:
    made = read(a_set())
    assert made["spec"]["replicas"] == 1
    machine = {"spec": {"domain": DOMAIN}}
    VirtualMachineStrategy().default(machine := deepcopy(machine))
    assert made["spec"]["template"]["spec"] == machine["spec"]
    assert read(made) == made
    assert structure.of_replica_set(made) == ()


@pytest.mark.parametrize(
    ("obj", "wanted"),
    [
        (a_set(), []),
        (a_set(replicas=0, minReadySeconds=0), []),
        (a_set("w" * 57), []),
        (a_set("w" * 58), ["metadata.name: Too long: may not be more than 57 bytes"]),
        (a_set("w" * 61, replicas=11, ordinals={}), ["metadata.name: Too long: may not be more than 60 bytes"]),
        (a_set("w" * 61, replicas=10, ordinals={}), []),
        (a_set("w" * 61, replicas=0, ordinals={}), []),
        (a_set(ordinals={"start": -1}), ["spec.ordinals.start: Invalid value: -1: must be greater than or equal to 0"]),
        (
            a_set(replicas=2, ordinals={"start": 2147483646}),
            ["spec.ordinals.start: Invalid value: 2147483646: start and replicas together must not exceed 2147483647"],
        ),
        (a_set(replicas=-1), ["spec.replicas: Invalid value: -1: must be greater than or equal to 0"]),
        (a_set(minReadySeconds=-1), ["spec.minReadySeconds: Invalid value: -1: must be greater than or equal to 0"]),
        (
            a_set(labels={"app": "db"}),
            ['spec.template.metadata.labels: Invalid value: {"app":"db"}: `selector` does not match template `labels`'],
        ),
        (
            a_set(selector={}),
            ["spec.selector: Invalid value: {}: an empty selector is invalid, because it selects every machine of the namespace"],
        ),
        (
            a_set(selector={"matchExpressions": [{"key": "app", "operator": "In"}]}),
            ["spec.selector.matchExpressions[0].values: Required value: must be specified when `operator` is 'In' or 'NotIn'"],
        ),
        (a_set(selector={"matchExpressions": [{"key": "app", "operator": "Exists"}]}), []),
        (
            a_set(domain={**DOMAIN, "cpu": {"cores": 0}}),
            ["spec.template.spec.domain.cpu.cores: Invalid value: 0: must be greater than or equal to 1"],
        ),
        (
            a_set(domain={**DOMAIN, "firmware": {"uuid": "6a4b9bd6-2d6f-5b0e-9d0d-1b2f6b1f7a51"}}),
            [
                "spec.template.spec.domain.firmware.uuid: Forbidden: every machine of the set would have the same; leave it out, and each "
                "machine gets its own"
            ],
        ),
        (
            a_set(domain={**DOMAIN, "devices": {"interfaces": [{"name": "a", "mac": "52:54:00:c0:ff:ee"}]}}),
            [
                "spec.template.spec.domain.devices.interfaces[0].mac: Forbidden: every machine of the set would have the same; leave it "
                "out, and each machine gets its own"
            ],
        ),
    ],
)
def test_validation(obj: Object, wanted: list[str]) -> None:
    assert faults(obj) == wanted


def a_claim_template(name: str = "data", storage: str | None = "1Gi", **spec: Any) -> Object:
    requests = {} if storage is None else {"storage": storage}
    return {"metadata": {"name": name}, "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": requests}, **spec}}


@pytest.mark.parametrize(
    ("spec", "wanted"),
    [
        ({"ordinals": {}, "volumeClaimTemplates": [a_claim_template(), a_claim_template("log", volumeMode="Block")]}, []),
        ({"volumeClaimTemplates": [a_claim_template()]}, ["spec.volumeClaimTemplates"]),
        ({"persistentVolumeClaimRetentionPolicy": {"whenScaled": "Delete"}}, ["spec.persistentVolumeClaimRetentionPolicy"]),
        (
            {"ordinals": {}, "volumeClaimTemplates": [a_claim_template("A"), a_claim_template(), a_claim_template()]},
            ["spec.volumeClaimTemplates[0].metadata.name", "spec.volumeClaimTemplates[2].metadata.name"],
        ),
        (
            {"ordinals": {}, "volumeClaimTemplates": [a_claim_template(storage=None), a_claim_template("b", "0", accessModes=[])]},
            [
                "spec.volumeClaimTemplates[0].spec.resources.requests.storage",
                "spec.volumeClaimTemplates[1].spec.accessModes",
                "spec.volumeClaimTemplates[1].spec.resources.requests.storage",
            ],
        ),
    ],
)
def test_claim_templates(spec: Object, wanted: list[str]) -> None:
    assert [each.partition(": ")[0] for each in faults(a_set(**spec))] == wanted


def test_claim_templates_and_when_deleted_are_immutable() -> None:
    strategy, old = ReplicaSetStrategy(), read(a_set(ordinals={}, volumeClaimTemplates=[a_claim_template()]))

    def refused(**spec: Any) -> list[str]:
        return [each.path for each in strategy.validate_update({**old, "spec": {**old["spec"], **spec}}, old)]

    assert refused(persistentVolumeClaimRetentionPolicy={"whenScaled": "Delete", "whenDeleted": "Retain"}) == []
    assert refused(persistentVolumeClaimRetentionPolicy={"whenDeleted": "Delete"}) == [
        "spec.persistentVolumeClaimRetentionPolicy.whenDeleted"
    ]
    assert refused(volumeClaimTemplates=[a_claim_template(storage="2Gi")]) == ["spec.volumeClaimTemplates"]


def test_labels_of_the_template_are_validated_at_their_place() -> None:
    (found,) = faults(a_set(labels={**LABELS, "-": "x"}))
    assert found.startswith("spec.template.metadata.labels: Invalid value: ")


def test_the_template_may_use_only_what_machines_may() -> None:
    obj = read(a_set(domain={**DOMAIN, "devices": {"vsock": {}}}))
    assert [each.path for each in ReplicaSetStrategy().validate(obj)] == ["spec.template.spec.domain.devices.vsock"]
    assert ReplicaSetStrategy(Allowed(vsock=True)).validate(obj) == []


def test_an_update_keeps_the_selector() -> None:
    strategy, old = ReplicaSetStrategy(), read(a_set())
    assert strategy.validate_update(read(a_set(replicas=9)), old) == []
    edited = read(a_set(selector={"matchExpressions": [{"key": "app", "operator": "Exists"}]}))
    assert [(each.path, each.detail) for each in strategy.validate_update(edited, old)] == [("spec.selector", "field is immutable")]
    other = read(a_set(labels={"app": "db"}))
    assert [each.path for each in strategy.validate_update(other, old)] == ["spec.template.metadata.labels"]


def test_an_update_keeps_the_kind_of_names() -> None:
    strategy, random, numbered = ReplicaSetStrategy(), read(a_set()), read(a_set(ordinals={}))
    assert numbered["spec"]["ordinals"] == {"start": 0}
    assert [each.path for each in strategy.validate_update(numbered, random)] == ["spec.ordinals"]
    assert [each.path for each in strategy.validate_update(random, numbered)] == ["spec.ordinals"]
    assert strategy.validate_update(read(a_set(ordinals={"start": 7})), numbered) == []
    long = read(a_set("w" * 61, replicas=10, ordinals={}))
    assert [each.path for each in strategy.validate_update(read(a_set("w" * 61, replicas=11, ordinals={})), long)] == ["metadata.name"]


def test_an_edit_of_the_template_warns_that_machines_stay() -> None:
    strategy, old = ReplicaSetStrategy(), {**read(a_set()), "status": {"replicas": 1}}
    (said,) = strategy.warnings_on_update(read(a_set(labels={**LABELS, "v": "2"})), old)
    assert said.startswith("spec.template: existing machines stay")
    assert strategy.warnings_on_update(read(a_set(replicas=5)), old) == ()


@pytest.mark.parametrize(
    ("before", "after", "warns"), [("Retain", "Delete", True), ("Delete", "Delete", False), ("Delete", "Retain", False)]
)
def test_deletion_of_kept_claims_is_warned_of(before: str, after: str, *, warns: bool) -> None:
    old, new = (read(a_set(ordinals={}, persistentVolumeClaimRetentionPolicy={"whenScaled": each})) for each in (before, after))
    assert bool(ReplicaSetStrategy().warnings_on_update(new, old)) is warns


def test_a_new_set_is_not_yet_as_its_spec_says() -> None:
    given = {"apiVersion": REPLICA_SETS.api_version, "kind": REPLICA_SETS.kind, **a_set()}
    created = Planner(ReplicaSetStrategy()).create(HubObject(read(given)), (), NOW)
    assert created["status"] == {"observedGeneration": 0}
    assert kstatus.result(created) == "InProgress"


def test_a_status_has_no_negative_counts() -> None:
    strategy = ReplicaSetStrategy()
    assert [each.path for each in strategy.validate_status_update({"status": {"replicas": -1}}, {})] == ["status.replicas"]
    assert strategy.validate_status_update({"status": {"replicas": 0, "observedGeneration": 7}}, {}) == []


def test_scale_and_table() -> None:
    strategy, obj = ReplicaSetStrategy(), {**read(a_set(replicas=5)), "status": {"replicas": 4, "readyReplicas": 3}}
    assert strategy.scaling is not None
    assert strategy.scaling.view(obj)["status"] == {"replicas": 4, "selector": "app=web"}  # type: ignore[arg-type] # the hub's form
    assert strategy.cells(obj, NOW) == [5, 4, 3, 0, "app=web"]
    assert len(strategy.columns()) == 5


def replicate(obj: Object, body: Object) -> Object:
    verb = ReplicaSetStrategy().verbs[REPLICATE]
    assert isinstance(verb, CreatingVerb)
    return verb.make(obj, body, NOW)


def test_replicate_makes_what_the_template_says() -> None:
    obj = read(a_set())
    made = replicate(obj, {"preconditions": {"uid": "u"}})
    assert made["spec"] == obj["spec"]["template"]["spec"]
    (owner,) = made["metadata"].pop("ownerReferences")
    assert made["metadata"] == {"generateName": "web-", "namespace": "ns", "labels": LABELS}
    assert (owner["kind"], owner["uid"], owner["controller"], owner["blockOwnerDeletion"]) == ("VirtualMachineReplicaSet", "u", True, True)


def with_placeholders(data: str, claim: str = "data-$(vm.suffix)") -> Object:
    disks = [
        {"name": "init", "type": "CloudInitNoCloud", "source": {"userData": data}},
        {"name": "data", "type": "PersistentVolumeClaim", "source": {"name": claim}},
    ]
    keys = [{"sshPublicKey": {"source": {"secret": {"secretName": "keys-of-$(vm.name)"}}, "propagationMethod": {"noCloud": {}}}}]
    obj = a_set(domain={**DOMAIN, "devices": {"disks": disks}})
    obj["spec"]["template"]["spec"]["accessCredentials"] = keys
    return obj


def test_placeholders_become_the_name_of_each_machine() -> None:
    obj = read(with_placeholders("id: $(vm.name), $(hostname), $$(vm.name)"))
    assert ReplicaSetStrategy().validate(obj) == []
    made = replicate(obj, {})
    name = made["metadata"]["name"]
    assert "generateName" not in made["metadata"]
    assert re.fullmatch("web-[a-z0-9]{5}", name)
    init, data = made["spec"]["domain"]["devices"]["disks"]
    assert init["source"]["userData"] == f"id: {name}, $(hostname), $(vm.name)"
    assert data["source"]["name"] == f"data-{name.removeprefix('web-')}"
    assert made["spec"]["accessCredentials"][0]["sshPublicKey"]["source"]["secret"]["secretName"] == f"keys-of-{name}"
    assert replicate(obj, {})["metadata"]["name"] != name


def test_an_ordinal_names_the_machine() -> None:
    obj = with_placeholders("$(vm.name) is $(vm.ordinal)", claim="data-$(vm.ordinal)")
    obj["spec"] |= {"ordinals": {"start": 5}, "replicas": 2}
    obj = read(obj)
    assert ReplicaSetStrategy().validate(obj) == []
    made = replicate(obj, {"ordinal": 6})
    assert (made["metadata"]["name"], "generateName" in made["metadata"]) == ("web-6", False)
    init, data = made["spec"]["domain"]["devices"]["disks"]
    assert (init["source"]["userData"], data["source"]["name"]) == ("web-6 is 6", "data-6")
    for ordinal in (4, 7):
        with pytest.raises(errors.Conflict, match=f"has 2 replicas from 5 on, without {ordinal}"):
            replicate(obj, {"ordinal": ordinal})
    for body in ({}, {"ordinal": "6"}, {"ordinal": True}):
        with pytest.raises(errors.BadRequest, match="requires an ordinal"):
            replicate(obj, body)
    with pytest.raises(errors.BadRequest, match=r"only for a set with spec\.ordinals"):
        replicate(read(a_set()), {"ordinal": 0})


@pytest.mark.parametrize(("placeholder", "spec"), [("ordinal", {}), ("suffix", {"ordinals": {}})])
def test_a_placeholder_of_the_other_kind_of_names_is_refused(placeholder: str, spec: Object) -> None:
    obj = with_placeholders(f"$(vm.{placeholder})", claim="data")
    obj["spec"] |= spec
    (found,) = faults(obj)
    assert "unknown placeholder" in found


def test_an_unknown_placeholder_is_refused_at_its_place() -> None:
    place = "spec.template.spec.domain.devices.disks[0].source.userData"
    assert faults(with_placeholders("$(vm.uid) $$(vm.ip) $(vm)")) == [
        f'{place}: Invalid value: "$(vm.uid)": unknown placeholder; $(vm.name) and $(vm.suffix) exist, and $$(vm.uid) stands for the text'
    ]
    (found,) = faults(with_placeholders("", claim="data_$(vm.suffix)"))
    assert found.startswith("spec.template.spec.domain.devices.disks[1].source.name: Invalid value:")


def test_replicate_is_refused() -> None:
    obj = read(a_set())
    with pytest.raises(errors.BadRequest, match="'spec'"):
        replicate(obj, {"spec": {"domain": {}}})
    with pytest.raises(errors.Conflict, match="another one"):
        replicate(obj, {"preconditions": {"uid": "v"}})
    obj["metadata"]["deletionTimestamp"] = "2026-11-29T00:00:00Z"
    with pytest.raises(errors.Conflict, match="being deleted"):
        replicate(obj, {})


def test_kubevirts_fields_in_the_template_have_hints() -> None:
    assert "runStrategy" in ReplicaSetStrategy().hint("spec.template.spec.running")
    assert ReplicaSetStrategy().hint("spec.template") == ""
