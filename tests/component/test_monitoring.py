"""A real Prometheus scrapes our processes' pages, and answers dashboards and alerts.

virt-api is a process; the other pages come from their code, with a launcher that has every statistic.
"""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import pytest_asyncio
import yaml
from aiohttp import web

from apiserver.apis.virt.places.resources import MIGRATIONS, VIRTUAL_MACHINES
from apiserver.client.config import Config
from apiserver.client.informer import Informer
from apiserver.client.rest import Client
from controller.manager.metrics import Metrics as ControllerMetrics
from controller.runtime.reconciling import Controller, Request, Result
from handler.devices.acceleration import Verdict
from handler.metrics.guests import METRICS
from handler.metrics.process import Metrics as HandlerMetrics
from handler.metrics.statistics import GuestStatistics
from handler.pods import launcher
from handler.pods.links import Holder, Links
from handler.pods.reads import Reads
from launcher.protocol import statistics
from tests.component.handler.world import eventually
from tests.fakes.aggregating import AggregatingAPI
from tests.fakes.etcd_server import etcd_binary
from tests.fakes.kubeapi import FakeAPI
from tests.fakes.launcher import FakeLauncher
from tests.ports import free_port
from tests.unit.charts import monitoring
from tests.unit.charts.test_monitoring import of_kind

pytestmark = [pytest.mark.host, pytest.mark.timeout(120)]

Page = Callable[[], Awaitable[bytes]]
CREATED = "2026-01-01T00:00:00Z"
POD = "pod-1"
FORGED = b"""\
kubevirt_node_acceleration{node="node2",job="virt-api",namespace="ns",reason="forged"} 0
kubevirt_vm_info{namespace="ns",name="forged",status_group="error"} 1
up{job="virt-api",instance="forged"} 0
"""
KUBEVIRTS = (
    # The dashboard "Top Consumers" of kubevirt/monitoring.
    "topk(5, sum by (namespace, name) (avg_over_time(kubevirt_vmi_memory_available_bytes[20s])"
    " - avg_over_time(kubevirt_vmi_memory_usable_bytes[20s])))",
    "topk(5, sum by (namespace, name) (rate(kubevirt_vmi_storage_read_traffic_bytes_total[20s])"
    " + rate(kubevirt_vmi_storage_write_traffic_bytes_total[20s])))",
    "topk(5, sum by (namespace, name) (rate(kubevirt_vmi_storage_iops_read_total[20s])"
    " + rate(kubevirt_vmi_storage_iops_write_total[20s])))",
    "topk(5, sum by (namespace, name) (rate(kubevirt_vmi_network_receive_bytes_total[20s])"
    " + rate(kubevirt_vmi_network_transmit_bytes_total[20s])))",
    "topk(5, sum by (namespace, name) (rate(kubevirt_vmi_vcpu_seconds_total[20s])))",
    "topk(5, sum by (namespace, name) (rate(kubevirt_vmi_vcpu_wait_seconds_total[20s])))",
    "topk(5, sum by (namespace, name) (rate(kubevirt_vmi_memory_swap_in_traffic_bytes[20s])"
    " + rate(kubevirt_vmi_memory_swap_out_traffic_bytes[20s])))",
    # Its alerts about machines with metrics here.
    "kubevirt_vmi_non_evictable * on (name, namespace) group_left () topk by (name, namespace) (1, kubevirt_vmi_info{phase='running'})",
    "sum by (vmi, namespace) (topk by (vmi, namespace, vmim) (1, max_over_time(kubevirt_vmi_migration_succeeded[1d])))",
    "sum by (name, namespace, status) (kubevirt_vm_info{status_group='error'} == 1) unless on (name, namespace) kubevirt_vmi_info",
)
"""With KubeVirt's metrics, labels and matchers, without thresholds."""


def a_machine(name: str, phase: str, **status: Any) -> dict[str, Any]:
    return {
        "metadata": {"namespace": "ns", "name": name, "creationTimestamp": CREATED},
        "spec": {"runStrategy": "Manual", "domain": {"cpu": {"cores": 2}, "memory": {"guest": "1Gi"}}},
        "status": {"phase": phase, "nodeName": "node1", "phaseTransitionTimestamps": [{"phase": phase, "time": CREATED}], **status},
    }


def a_migration(name: str, phase: str) -> dict[str, Any]:
    return {"metadata": {"namespace": "ns", "name": name}, "spec": {"selector": {"name": "testvm"}}, "status": {"phase": phase}}


class Idle:
    async def reconcile(self, request: Request) -> Result:
        return Result()


@asynccontextmanager
async def running(part: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(part)
        yield
        task.cancel()


async def controller_page(stack: AsyncExitStack) -> Page:
    fake = FakeAPI()
    for each in ("Running", "Succeeded", "Failed"):
        await fake.put(MIGRATIONS.path(), a_migration(each.lower(), each))
    client = await stack.enter_async_context(Client(await stack.enter_async_context(fake.serving()), user_agent="test"))
    migrations = Informer(client, MIGRATIONS)
    await stack.enter_async_context(running(migrations.run()))
    await migrations.synced.wait()
    metrics = ControllerMetrics()
    metrics.leader.value = 1
    claim_lacks = {"type": "DisksReady", "status": "False", "reason": "ClaimNotFound"}
    machines = [
        a_machine("testvm", "Running", podUID=POD, podName="virt-launcher-testvm"),
        a_machine("broken", "Pending", conditions=[claim_lacks]),
    ]
    metrics.watch_machines(lambda: machines, "LiveMigrate")
    metrics.watch_migrations(migrations)
    metrics.watch_nodes(lambda: ["node1"])
    metrics.watch_queue(Controller("virtualmachine", Idle()))
    metrics.loops.reconciled("virtualmachine", "success", 0.01)
    metrics.loops.reconciled("virtualmachine", "error", 0.01)
    return metrics.page


def every_statistic() -> str:
    devices = {"net.0.name": "tap0", "block.0.name": "vda", "vcpu.0.state": 1}
    return statistics.encoded({**{each.key.replace("*", "0"): 1 << 20 for each in METRICS}, **devices})


async def handler_page(root: Path, stack: AsyncExitStack) -> Page:
    guest = FakeLauncher(POD)
    guest.texts[statistics.NAME] = every_statistic()
    links = Links(partial(launcher.connect, kubelet=root, identify=guest.identify), changed=lambda _: None)
    await stack.enter_async_context(guest.serving(root))
    await stack.enter_async_context(running(links.run()))
    link = links.acquire(POD, Holder("vm", Request("ns", "testvm")))
    await eventually(lambda: link.connection is not None)
    metrics = HandlerMetrics()
    metrics.verdict(Verdict(accelerated=False, reason="no /dev/kvm"))
    metrics.certificate.value = 2_000_000_000
    devices = [{"name": "root", "target": "vda"}, {"name": "default", "target": "tap0"}]
    machine = a_machine("testvm", "Running", podUID=POD, devices=devices)
    guests = GuestStatistics("node1", lambda: [machine], Reads(links, wait_seconds=5, fresh_seconds=0.0))

    async def page() -> bytes:
        return metrics.text() + await guests.page() + FORGED

    return page


async def api_page(root: Path, stack: AsyncExitStack) -> Page:
    ours = await stack.enter_async_context(AggregatingAPI().aggregating(root, f"--etcd-binary={etcd_binary()}"))
    client = await stack.enter_async_context(Client(ours, user_agent="test"))
    await stack.enter_async_context(running(Informer(client, MIGRATIONS).run()))
    return partial(_of_virt_api, ours)


async def _of_virt_api(ours: Config) -> bytes:
    url = f"{ours.server}{VIRTUAL_MACHINES.path('ns')}/absent"
    async with aiohttp.ClientSession() as session:
        async with session.get(url, ssl=ours.ssl_context()) as answer:
            assert answer.status == 404
        async with session.get(f"{ours.server}/metrics", ssl=ours.ssl_context()) as answer:
            assert answer.status == 200
            return await answer.read()


@asynccontextmanager
async def served(pages: Mapping[str, Page]) -> AsyncIterator[int]:
    async def serve(request: web.Request) -> web.Response:
        return web.Response(body=await pages[request.match_info["job"]](), headers={"Content-Type": "text/plain; version=0.0.4"})

    app = web.Application()
    app.router.add_get("/{job}", serve)
    runner = web.AppRunner(app)
    await runner.setup()
    port = free_port()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    try:
        yield port
    finally:
        await runner.cleanup()


def rules_for_labels(endpoint: Mapping[str, Any]) -> dict[str, Any]:
    def renamed(rules: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
        return [{re.sub("[A-Z]", lambda found: f"_{found[0].lower()}", key): value for key, value in rule.items()} for rule in rules]

    return {
        "honor_labels": endpoint["honorLabels"],
        "relabel_configs": renamed(endpoint.get("relabelings", ())),
        "metric_relabel_configs": renamed(endpoint.get("metricRelabelings", ())),
    }


@asynccontextmanager
async def prometheus(directory: Path, port: int, jobs: Iterable[str]) -> AsyncIterator[str]:
    monitors = of_kind("ServiceMonitor")
    labels = {"namespace": "kubevirt", "pod": "pod", "__meta_kubernetes_pod_node_name": "node1"}
    scrapes = [
        {
            "job_name": each,
            "metrics_path": f"/{each}",
            "scrape_interval": "1s",
            "static_configs": [{"targets": [f"127.0.0.1:{port}"], "labels": labels}],
            **rules_for_labels(monitors[each]["spec"]["endpoints"][0]),
        }
        for each in jobs
    ]
    config = directory / "prometheus.yaml"
    config.write_text(yaml.safe_dump({"scrape_configs": scrapes, "rule_files": [str(monitoring.ALERTS)]}))
    own = free_port()
    flags = (f"--config.file={config}", f"--storage.tsdb.path={directory / 'data'}", f"--web.listen-address=127.0.0.1:{own}")
    with (directory / "prometheus.log").open("wb") as log:
        process = await asyncio.create_subprocess_exec("prometheus", *flags, stdout=log, stderr=log)
    try:
        yield f"http://127.0.0.1:{own}"
    finally:
        process.terminate()
        await process.wait()


class Asked:
    def __init__(self, url: str, session: aiohttp.ClientSession) -> None:
        self._url, self._session = url, session

    async def series(self, query: str) -> list[Any]:
        async with self._session.get(f"{self._url}/api/v1/query", params={"query": query}) as answer:
            found = await answer.json()
        assert found["status"] == "success", f"{query}: {found}"
        result: list[Any] = found["data"]["result"]
        return result

    async def scraped(self, times: int, jobs: int) -> None:
        async with asyncio.timeout(60):
            while True:
                with suppress(aiohttp.ClientError):
                    found = await self.series(f"count_over_time(up[1m]) >= {times} and up == 1")
                    if len(found) == jobs:
                        return
                await asyncio.sleep(0.2)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def asked(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Asked]:
    tmp_path = tmp_path_factory.mktemp("monitoring")
    async with AsyncExitStack() as stack:
        pages = {
            "virt-api": await api_page(tmp_path, stack),
            "virt-controller": await controller_page(stack),
            "virt-handler": await handler_page(tmp_path, stack),
        }
        port = await stack.enter_async_context(served(pages))
        url = await stack.enter_async_context(prometheus(tmp_path, port, pages))
        found = Asked(url, await stack.enter_async_context(aiohttp.ClientSession()))
        await found.scraped(3, len(pages))
        yield found


def as_grafana(expression: str) -> str:
    return expression.replace("$__rate_interval", "20s").replace("$namespace", ".*").replace("$name", ".*")


def selectors(expression: str) -> Iterator[str]:
    """Yield an alert's selectors with any value of each label: a healthy system has no series with the alert's values."""
    for name, matchers in monitoring.SELECTOR.findall(expression):
        labels = [f'{label}!=""' for label in re.findall(r"(\w+)[!=~]+", matchers)]
        yield f"{name}{{{','.join(labels)}}}"


@pytest.mark.asyncio(loop_scope="module")
async def test_every_query_returns_series(asked: Asked) -> None:
    wanted = [
        *((title, as_grafana(expression)) for title, expression in monitoring.queries()),
        *((name, selector) for name, alert in monitoring.alerts().items() for selector in selectors(alert["expr"])),
        *(("KubeVirt's", query) for query in KUBEVIRTS),
    ]
    assert len(wanted) > 70
    assert [(title, query) for title, query in wanted if not await asked.series(query)] == []
    assert await asked.series("kubevirt_absent") == []


@pytest.mark.asyncio(loop_scope="module")
async def test_labels_of_a_machine_are_not_those_of_its_target(asked: Asked) -> None:
    (found,) = await asked.series("kubevirt_vmi_cpu_usage_seconds_total")
    assert found["metric"].items() >= {"namespace": "ns", "name": "testvm", "node": "node1", "job": "virt-handler"}.items()
    (links,) = await asked.series("kubevirt_launcher_links")
    assert links["metric"].items() >= {"namespace": "kubevirt", "node": "node1"}.items()
    assert "node" not in (await asked.series('kubevirt_vm_info{name="broken"}'))[0]["metric"]


@pytest.mark.asyncio(loop_scope="module")
async def test_a_node_cannot_report_for_others(asked: Asked) -> None:
    (found,) = await asked.series('kubevirt_node_acceleration{reason="forged"}')
    assert found["metric"].items() >= {"namespace": "kubevirt", "node": "node1", "job": "virt-handler"}.items()
    assert not [label for label in found["metric"] if label.startswith("exported_")]
    assert await asked.series('{name="forged"} or {instance="forged"}') == []


def promtool(directory: Path, cases: Mapping[str, Any]) -> subprocess.CompletedProcess[str]:
    file = directory / "cases.yaml"
    file.write_text(json.dumps({"rule_files": [str(monitoring.ALERTS)], "evaluation_interval": "1m", **cases}))
    return subprocess.run(["promtool", "test", "rules", str(file)], check=False, capture_output=True, text=True)


MACHINE = 'namespace="ns",name="testvm"'
GUEST = f'{MACHINE},node="node1"'
FIRING: Mapping[str, tuple[str, Mapping[str, str]]] = {
    "VirtAPIDown": ("6m", {'up{job="virt-api"}': "0x10"}),
    "VirtAPIErrors": (
        "20m",
        {'apiserver_request_total{job="virt-api",code="200"}': "0+60x30", 'apiserver_request_total{job="virt-api",code="503"}': "0+6x30"},
    ),
    "VirtControllerDown": ("6m", {'up{job="virt-api"}': "1x10"}),
    "NoLeadingVirtController": ("11m", {'kubevirt_leader{pod="a"}': "0x20", 'kubevirt_leader{pod="b"}': "0x20"}),
    "VirtHandlerDown": ("11m", {'up{job="virt-handler",node="node1"}': "0x20"}),
    "KubeVirtReconcileErrors": (
        "25m",
        {'controller_runtime_reconcile_total{job="virt-controller",controller="vm",result="error"}': "0+12x30"},
    ),
    "KubeVirtInformerFaults": ("6m", {'kubevirt_informer_faults{pod="a"}': "1x10"}),
    "VirtHandlerCertificateExpires": ("16m", {'kubevirt_certificate_expiration_timestamp_seconds{node="node1"}': "17000x20"}),
    "KubeVirtEtcdAlmostFull": ("16m", {'apiserver_storage_size_bytes{job="virt-api"}': "2000000000x20"}),
    "KubeVirtNodeWithoutKVM": ("16m", {'kubevirt_node_acceleration{node="node1",reason="no /dev/kvm"}': "0x20"}),
    "KubeVirtNodeNonOperational": ("1m", {'kubevirt_node_non_operational{node="node1"}': "1x10"}),
    "OutdatedVirtualMachineInstanceWorkloads": ("25h", {"kubevirt_outdated_launchers": "1x1600"}),
    "VirtualMachineStuckInUnhealthyState": (
        "11m",
        {
            f'kubevirt_vm_info{{{MACHINE},status="errimagepull",status_group="error"}}': "1x3 stale _x2 1x3 stale",
            f'kubevirt_vm_info{{{MACHINE},status="imagepullbackoff",status_group="error"}}': "_x3 1x3 stale _x2 1x3 stale",
        },
    ),
    "VMCannotBeEvicted": ("2m", {f"kubevirt_vmi_non_evictable{{{GUEST}}}": "1x10"}),
    "KubeVirtVMIExcessiveMigrations": (
        "2m",
        {f'kubevirt_vmi_migration_succeeded{{namespace="ns",vmi="testvm",vmim="m{each}"}}': "1x10" for each in range(12)},
    ),
    "KubeVirtMigrationsFail": (
        "6m",
        {f'kubevirt_vmi_migration_failed{{namespace="ns",vmi="testvm",vmim="m{each}"}}': "1x10" for each in range(3)},
    ),
    "KubeVirtVMGuestMemoryPressure": (
        "15m",
        {
            f"kubevirt_vmi_memory_usable_bytes{{{GUEST}}}": "4x20",
            f"kubevirt_vmi_memory_available_bytes{{{GUEST}}}": "100x20",
            f"kubevirt_vmi_memory_pgmajfault_total{{{GUEST}}}": "0+600x20",
        },
    ),
    "GuestStatisticsMissing": ("31m", {'kubevirt_guest_statistics_missing{node="node1"}': "1x40"}),
}
"""By alert: when it fires, and because of which series."""
HEALTHY: Mapping[str, str] = {
    'up{job="virt-api"}': "1x1600",
    'up{job="virt-controller"}': "1x1600",
    'up{job="virt-handler",node="node1"}': "1x1600",
    'apiserver_request_total{job="virt-api",code="200"}': "0+60x1600",
    'apiserver_request_total{job="virt-api",code="503"}': "0+1x1600",
    'kubevirt_leader{pod="a"}': "0x1600",
    'kubevirt_leader{pod="b"}': "1x1600",
    'controller_runtime_reconcile_total{job="virt-controller",controller="vm",result="error"}': "0+1x1600",
    'kubevirt_informer_faults{pod="a"}': "0x1600",
    'kubevirt_certificate_expiration_timestamp_seconds{node="node1"}': "200000x1600",
    'apiserver_storage_size_bytes{job="virt-api"}': "1000000000x1600",
    'kubevirt_node_acceleration{node="node1",reason="a trial guest succeeded"}': "1x1600",
    'kubevirt_node_acceleration{node="node2",reason="forced by --acceleration=emulation"}': "0x1600",
    "kubevirt_outdated_launchers": "0x1600",
    f'kubevirt_vm_info{{{MACHINE},status="running",status_group="running"}}': "1x1600",
    'kubevirt_vm_info{namespace="ns",name="off",status="stopped",status_group="non_running"}': "1x1600",
    f"kubevirt_vmi_non_evictable{{{GUEST}}}": "0x1600",
    **{
        f'kubevirt_vmi_migration_succeeded{{namespace="ns",vmi="testvm",vmim="m{number}",pod="{replica}"}}': "_x200 1x1400"
        for number in range(11)
        for replica in ("a", "b")
    },
    'kubevirt_vmi_migration_succeeded{namespace="ns",vmi="testvm",vmim="of-the-day-before"}': "1x1600",
    **{
        f'kubevirt_vmi_migration_failed{{namespace="ns",vmi="testvm",vmim="{name}",pod="{replica}"}}': "1x1600"
        for name in ("n", "o")
        for replica in ("a", "b")
    },
    f"kubevirt_vmi_memory_usable_bytes{{{GUEST}}}": "4x1600",
    f"kubevirt_vmi_memory_available_bytes{{{GUEST}}}": "100x1600",
    f"kubevirt_vmi_memory_pgmajfault_total{{{GUEST}}}": "0+60x1600",
    'kubevirt_guest_statistics_missing{node="node1"}': "0x1600",
}


def series(found: Mapping[str, str]) -> list[dict[str, str]]:
    return [{"series": name, "values": values} for name, values in found.items()]


def firing(at: str, name: str) -> dict[str, Any]:
    return {
        "expr": f'count(ALERTS{{alertname="{name}",alertstate="firing"}})',
        "eval_time": at,
        "exp_samples": [{"labels": "{}", "value": 1}],
    }


def test_each_alert_fires_for_its_fault(tmp_path: Path) -> None:
    assert FIRING.keys() == monitoring.alerts().keys()
    tests = [
        {"interval": "1m", "input_series": series(found), "promql_expr_test": [firing(at, name)]} for name, (at, found) in FIRING.items()
    ]
    done = promtool(tmp_path, {"tests": tests})
    assert done.returncode == 0, done.stdout + done.stderr


def test_no_alert_fires_in_a_healthy_system(tmp_path: Path) -> None:
    quiet = {"expr": "ALERTS", "eval_time": "25h", "exp_samples": []}
    done = promtool(tmp_path, {"tests": [{"interval": "1m", "input_series": series(HEALTHY), "promql_expr_test": [quiet]}]})
    assert done.returncode == 0, done.stdout + done.stderr
