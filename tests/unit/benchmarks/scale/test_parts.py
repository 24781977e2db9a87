from __future__ import annotations

import asyncio

from apiserver.apis.meta.objects import NamespacedName
from benchmarks.scale import chart, machines, meter, nodes
from benchmarks.scale.guests import Guest, Guests
from benchmarks.scale.machines import spread
from benchmarks.scale.meter import Reading
from launcher.protocol import messages
from tests.fakes import chart as charts

METRICS = """\
# TYPE apiserver_request_total counter
apiserver_request_total{code="200",component="apiserver",group="coordination.k8s.io",resource="leases",subresource="",verb="PUT"} 7
apiserver_request_total{code="201",component="apiserver",group="",resource="pods",subresource="",verb="POST"} 3
apiserver_request_total{code="200",component="apiserver",group="",resource="pods",subresource="status",verb="PATCH"} 1.5e+03
apiserver_request_total{code="409",component="apiserver",group="",resource="pods",subresource="",verb="POST"} 4
apiserver_request_total{code="200",component="apiserver",group="",resource="pods",subresource="",verb="LIST"} 5
"""


def test_successful_writes_are_counted_by_resource() -> None:
    assert meter.writes(METRICS) == {"leases": 7, "pods": 3, "pods/status": 1500}


def test_a_restarted_program_starts_with_nothing() -> None:
    before = Reading(0.0, {"a": 5.0, "b": 5.0}, {"etcd": 10}, {"pods": 1})
    spent = Reading(2.0, {"a": 7.0, "b": 1.0}, {"etcd": 13}, {"pods": 1, "nodes": 2, "leases": 9, "tokenreviews": 1}).since(before)
    assert spent.processor == {"a": 2.0, "b": 1.0}
    assert (spent.seconds, spent.writes, spent.changed()) == (2.0, {"etcd": 3}, {"leases": 9, "nodes": 2, "tokenreviews": 1})
    assert spent.objects() == 2


def test_a_tenth_of_the_nodes_is_the_rack() -> None:
    groups = [nodes.Groups.of(*each) for each in ((2, 10), (10, 10), (100, 10), (2_000, 10), (500, 40))]
    divided = [(found.count, len(found.drained), len(found.rack)) for found in groups]
    assert divided == [(2, 1, 1), (10, 9, 1), (100, 90, 10), (2_000, 150, 40), (500, 37, 37)]
    every = [each for members in nodes.Groups.of(2_000, 10).members.values() for each in members]
    assert len(set(every)) == len(every) == 2_000


def test_machines_have_names_in_namespaces_of_limited_size() -> None:
    every = machines.names(2_500)
    assert len(set(every)) == 2_500
    assert every[0] == NamespacedName("scale-0", "vm-00000")
    assert {each.namespace for each in every} == {"scale-0", "scale-1", "scale-2"}


def test_spread() -> None:
    assert spread(range(100)) == {"p50": 50, "p95": 95, "most": 99}


def test_services_of_the_chart_are_ports_of_loopback() -> None:
    changed = {each["kind"]: chart.at_ports(each, 1, 2) for each in charts.objects()}
    assert changed["APIService"]["spec"]["service"]["port"] == 1
    assert [each["clientConfig"]["service"]["port"] for each in changed["ValidatingWebhookConfiguration"]["webhooks"]] == [2]
    assert not [each for each in chart.arguments("virt-api") if "etcd" in each]


def test_the_pod_of_a_handler_is_the_chart_s_on_that_node() -> None:
    pod = nodes.handler_pod("node-1")
    assert (pod["spec"]["nodeName"], pod["spec"]["serviceAccountName"]) == ("node-1", "virt-handler")
    assert pod["metadata"]["labels"]["kubevirt.io"] == "virt-handler"


async def test_a_guest_moves_to_the_launcher_that_expects_it() -> None:
    async with asyncio.TaskGroup() as tasks:
        guests = Guests(tasks, copy_seconds=0)
        source, target, other = (guests.add(each) for each in ("source", "target", "other"))
        source.change(domain=messages.DomainStatus("d", "u", "qemu", "running", "booted"))
        target.migration("mig", "incoming", "prepared")
        other.migration("another", "incoming", "prepared")
        source.migration("mig", "outgoing", "running")
    assert (state(source, "mig"), state(target, "mig"), state(other, "another")) == ("succeeded", "arrived", "prepared")
    assert source.status.ending == messages.Ending("migrated", "")
    assert target.status.domain is not None
    assert target.status.domain.state == "paused"


def state(guest: Guest, uid: str) -> str:
    known = guest.status.migration_of(uid)
    return known.state if known else ""
