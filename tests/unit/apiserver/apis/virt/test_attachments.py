from __future__ import annotations

import json
from typing import Any

import pytest

from apiserver.apis.virt.places import names, network
from apiserver.apis.virt.rights import pod_rights
from apiserver.apis.virt.spec import attachments
from controller.reconcilers.launcher_pods.launcher_pod import launcher_pod, target_pod
from controller.reconcilers.launcher_pods.scheduling import Placement
from tests.unit.controller.reconcilers.builders import UID, a_migration, a_vm
from tests.unit.controller.reconcilers.launcher_pods.test_launcher_pod import MOVE, NETWORKS, SETTINGS

LINK = attachments.link("lan")


def a_pod(annotations: dict[str, str] | None = None) -> dict[str, Any]:
    pod = launcher_pod(NETWORKS, 1, {}, SETTINGS, Placement())
    pod["metadata"]["uid"] = "uid-1"
    if annotations is not None:
        pod["metadata"]["annotations"] = annotations
    return pod


def objections(pod: dict[str, Any], vm: dict[str, Any] = NETWORKS) -> list[str]:
    return pod_rights.objections(vm, pod, pod["metadata"]["name"], "uid-1")


def test_pod_requests_each_network_with_own_link_and_guest_mac() -> None:
    asked = json.loads(a_pod()["metadata"]["annotations"][attachments.ANNOTATION])
    assert asked == [
        {"name": "lan", "namespace": "default", "interface": LINK, "mac": "52:54:00:aa:bb:cc"},
        {"name": "wan", "namespace": "default", "interface": attachments.link("wan"), "mac": network.derived_mac(UID, "wan")},
        {"name": "fast", "namespace": "default", "interface": attachments.link("card"), "mac": network.derived_mac(UID, "card")},
    ]


def test_the_target_of_a_migration_asks_for_the_same() -> None:
    target = target_pod(NETWORKS, a_migration(), 1, {}, SETTINGS, MOVE)
    assert target["metadata"]["annotations"][attachments.ANNOTATION] == a_pod()["metadata"]["annotations"][attachments.ANNOTATION]


def test_target_asks_also_for_the_networks_of_coming_cards() -> None:
    vm = a_vm(domain={"devices": {"interfaces": [{"name": "default"}, {"name": "new", "network": "default/new"}]}})
    vm["status"] = {"running": {"generation": 1, "domain": {"devices": {"interfaces": [{"name": "default"}]}}}}
    target = target_pod(vm, a_migration(), 1, {}, SETTINGS, MOVE, ["new"])
    target["metadata"]["uid"] = "uid-1"
    (asked,) = json.loads(target["metadata"]["annotations"][attachments.ANNOTATION])
    assert (asked["name"], asked["interface"]) == ("new", attachments.link_of_network("new", "default/new"))
    assert objections(target, vm) == []
    assert attachments.ANNOTATION not in target_pod(vm, a_migration(), 1, {}, SETTINGS, MOVE)["metadata"]["annotations"]


def test_target_of_a_guest_without_cards_can_open_a_tap() -> None:
    vm = a_vm(domain={"devices": {"interfaces": [{"name": "default"}]}})
    vm["status"] = {"running": {"generation": 1, "domain": {"devices": {"interfaces": []}}}}
    for coming, expected in ((("default",), "1"), ((), None)):
        (container,) = target_pod(vm, a_migration(), 1, {}, SETTINGS, MOVE, coming)["spec"]["containers"]
        assert container["resources"]["limits"].get(names.TUN_RESOURCE) == expected


def test_a_machine_on_its_pods_own_network_asks_for_nothing() -> None:
    assert attachments.pod_annotations(a_vm()) == {}


def test_annotations_of_the_machine_do_not_come_to_the_pod() -> None:
    vm = a_vm()
    vm["metadata"]["annotations"] = {attachments.ANNOTATION: "kube-system/secret", attachments.DEFAULT_NETWORK_ANNOTATION: "x"}
    pod = launcher_pod(vm, 1, {}, SETTINGS, Placement())
    assert not {attachments.ANNOTATION, attachments.DEFAULT_NETWORK_ANNOTATION} & pod["metadata"]["annotations"].keys()


def test_names_of_links_fit_and_follow_from_the_interface_alone() -> None:
    names = {part(name) for part in (attachments.link, attachments.tap, attachments.bridge) for name in ("lan", "wan", "x" * 63)}
    assert len(names) == 9
    assert all(len(each) <= 14 for each in names)
    assert attachments.link("lan") == LINK


@pytest.mark.parametrize("given", ["lan", "default/lan", "a", "0-0", "x" * 63])
def test_networks_of_own_and_shared_namespace_are_allowed(given: str) -> None:
    assert attachments.problem(given) == ""


@pytest.mark.parametrize("given", ["kube-system/lan", "default/default/lan", "lan,wan", "lan@eth0", "", "/", "x" * 64, "lan\n", 'a","b'])
def test_networks_of_other_namespaces_are_refused(given: str) -> None:
    assert attachments.problem(given)
    assert attachments.of(a_vm(domain={"devices": {"interfaces": [{"name": "lan", "network": given}]}})) == ()


@pytest.mark.parametrize("given", [None, 7, ["lan"], {"name": "lan"}])
def test_network_names_of_wrong_type_are_ignored(given: Any) -> None:
    assert attachments.of(a_vm(domain={"devices": {"interfaces": [{"name": "lan", "network": given}]}})) == ()


def test_reserved_mac_is_replaced_by_the_derived_one() -> None:
    cards = [{"name": "lan", "network": "lan", "mac": network.BRIDGE_MAC}]
    (found,) = attachments.of(a_vm(domain={"devices": {"interfaces": cards}}))
    assert found.mac == network.derived_mac(UID, "lan")


def test_a_status_may_name_the_pod_that_virt_controller_makes() -> None:
    assert objections(a_pod()) == []
    assert objections(a_pod({})) == []


@pytest.mark.parametrize(
    "annotations",
    [
        {attachments.ANNOTATION: json.dumps([{"name": "secret", "namespace": "default"}])},
        {attachments.ANNOTATION: json.dumps([{"name": "lan", "namespace": "kube-system"}])},
        {attachments.ANNOTATION: json.dumps([{"name": "lan", "namespace": "default"}, {"name": "lan"}])},
        {attachments.ANNOTATION: "lan"},
        {attachments.ANNOTATION: '"lan"'},
        {attachments.ANNOTATION: "[" * 100_000},
        {attachments.ANNOTATION: '["lan"]'},
        {attachments.DEFAULT_NETWORK_ANNOTATION: "lan"},
    ],
)
def test_pod_with_a_network_its_machine_lacks_is_refused(annotations: dict[str, str]) -> None:
    (said,) = objections(a_pod(annotations))
    assert "annotation" in said
    assert objections(a_pod(a_pod()["metadata"]["annotations"]), a_vm())
