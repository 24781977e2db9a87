"""ServiceMonitors, alerts and dashboards. tests/component/test_monitoring.py runs them in Prometheus."""

from __future__ import annotations

import json
import re
from itertools import combinations
from typing import Any

import pytest
import yaml

from handler.metrics import guests, statistics
from handler.metrics.process import Metrics as HandlerMetrics
from tests.fakes import chart
from tests.unit.charts import monitoring
from tests.unit.charts.test_kubevirt import CHART, NODE, helm, objects

ALL = tuple(f"monitoring.{each}.enabled=true" for each in ("serviceMonitor", "rules", "dashboards"))
KINDS = ("ServiceMonitor", "PrometheusRule")


def rendered(*settings: str) -> list[dict[str, Any]]:
    flags = [flag for each in (NODE, *ALL, *settings) for flag in ("--set", each)]
    apis = [flag for kind in KINDS for flag in ("--api-versions", f"monitoring.coreos.com/v1/{kind}")]
    done = helm("template", "kubevirt", str(CHART), "--namespace", "system", *flags, *apis)
    assert done.returncode == 0, done.stderr
    return chart.parsed(done.stdout)


def of_kind(kind: str, *settings: str) -> dict[str, dict[str, Any]]:
    return {each["metadata"]["name"]: each for each in rendered(*settings) if each["kind"] == kind}


def test_nothing_is_monitored_by_default() -> None:
    assert not {each["kind"] for each in objects(NODE)} & {*KINDS, "ConfigMap"}


@pytest.mark.parametrize(("value", "kind"), [("serviceMonitor", "ServiceMonitor"), ("rules", "PrometheusRule")])
def test_a_missing_kind_is_named(value: str, kind: str) -> None:
    done = helm("template", "kubevirt", str(CHART), "--set", NODE, "--set", f"monitoring.{value}.enabled=true")
    assert done.returncode != 0
    assert f"monitoring.{value}.enabled: this cluster has no kind {kind} " in done.stderr
    assert f"--api-versions monitoring.coreos.com/v1/{kind}" in done.stderr


def test_each_service_monitor_selects_one_port_of_our_pods() -> None:
    found = rendered("monitoring.serviceMonitor.labels.release=prometheus")
    services = [each for each in found if each["kind"] == "Service"]
    workloads = [each["spec"]["template"] for each in found if each["kind"] in {"Deployment", "DaemonSet"}]
    monitors = [each for each in found if each["kind"] == "ServiceMonitor"]
    assert [each["metadata"]["name"] for each in monitors] == ["virt-api", "virt-controller", "virt-handler"]
    for monitor in monitors:
        assert monitor["metadata"]["labels"]["release"] == "prometheus"
        (endpoint,) = monitor["spec"]["endpoints"]
        wanted = monitor["spec"]["selector"]["matchLabels"].items()
        ports = [
            (service["spec"]["selector"], port["targetPort"])
            for service in services
            for port in service["spec"]["ports"]
            if wanted <= service["metadata"]["labels"].items() and port["name"] == endpoint["port"]
        ]
        ((selector, target),) = ports
        (pod,) = (each for each in workloads if selector.items() <= each["metadata"]["labels"].items())
        numbers = {port["name"]: port["containerPort"] for port in pod["spec"]["containers"][0]["ports"]}
        assert numbers[target] == 8443
        assert endpoint["honorLabels"] is (monitor["metadata"]["name"] != "virt-handler"), "a node's labels are not trusted"


def test_every_metric_of_virt_handler_is_kept_and_no_other() -> None:
    (endpoint,) = of_kind("ServiceMonitor")["virt-handler"]["spec"]["endpoints"]
    keep = next(each["regex"] for each in endpoint["metricRelabelings"] if each.get("action") == "keep")
    registered = re.findall(r"^# TYPE (\w+)", HandlerMetrics().text().decode(), re.MULTILINE)
    own = {*registered, statistics.MISSING, *(each.name for each in guests.METRICS)}
    assert {each for each in own if not re.fullmatch(keep, each)} == set()
    others = {each for each in monitoring.exported() - own if not each.startswith("controller_runtime_reconcile")}
    assert {each for each in others if re.fullmatch(keep, each)} == set()
    assert {"up", "kubevirt_vm_info", "kubevirt_vmi_info", "kubevirt_leader"} <= others


def test_certificates_of_targets_are_checked_where_possible() -> None:
    found = {name: each["spec"]["endpoints"][0]["tlsConfig"] for name, each in of_kind("ServiceMonitor").items()}
    assert found["virt-api"] == {
        "serverName": "virt-api.system.svc",
        "ca": {"secret": {"name": "kubevirt-virt-api-tls", "key": "ca.crt"}},
    }
    assert found["virt-controller"]["serverName"] == "virt-controller.system.svc"
    assert found["virt-handler"] == {"insecureSkipVerify": True}


def test_only_series_of_virt_handler_get_their_node() -> None:
    """virt-controller reports machines, which have another node or none."""
    found = {name: each["spec"]["endpoints"][0].get("relabelings", []) for name, each in of_kind("ServiceMonitor").items()}
    assert {name: [rule["targetLabel"] for rule in rules] for name, rules in found.items()} == {
        "virt-api": [],
        "virt-controller": [],
        "virt-handler": ["node"],
    }


def test_alerts_follow_the_values() -> None:
    settings = ("etcd.quotaBackendBytes=1000000000", "certificates.nodeLifetime=1h", "monitoring.rules.labels.release=prometheus")
    rule = of_kind("PrometheusRule", *settings)["kubevirt"]
    found = {each["alert"]: each for group in rule["spec"]["groups"] for each in group["rules"]}
    assert rule["metadata"]["labels"]["release"] == "prometheus"
    assert found.keys() == monitoring.alerts().keys()
    assert found["KubeVirtEtcdAlmostFull"]["expr"].endswith("> 0.8 * 1000000000")
    assert found["VirtHandlerCertificateExpires"]["expr"].endswith("< 3600 / 5")
    unchanged = of_kind("PrometheusRule")["kubevirt"]["spec"]["groups"]
    assert unchanged == yaml.safe_load(monitoring.ALERTS.read_text(encoding="utf-8"))["groups"]


def test_dashboards_are_where_grafanas_sidecar_looks() -> None:
    settings = ("monitoring.dashboards.namespace=grafana", "monitoring.dashboards.labels.team=vms")
    found = of_kind("ConfigMap", *settings)
    assert found.keys() == {"kubevirt-dashboard-machines", "kubevirt-dashboard-system"}
    assert {json.dumps(json.loads(text)) for each in found.values() for text in each["data"].values()} == {
        json.dumps(each) for each in monitoring.dashboards().values()
    }
    for each in found.values():
        assert each["metadata"]["namespace"] == "grafana"
        assert {"grafana_dashboard": "1", "team": "vms"}.items() <= each["metadata"]["labels"].items()


@pytest.mark.parametrize("name", monitoring.dashboards())
def test_panels_do_not_overlap(name: str) -> None:
    panels = monitoring.dashboards()[name]["panels"]
    assert len({each["id"] for each in panels}) == len({each["title"] for each in panels}) == len(panels)

    def apart(one: dict[str, int], other: dict[str, int]) -> bool:
        return any(a[axis] + a[size] <= b[axis] for a, b in ((one, other), (other, one)) for axis, size in (("x", "w"), ("y", "h")))

    assert all(apart(one["gridPos"], other["gridPos"]) for one, other in combinations(panels, 2))


@pytest.mark.parametrize(
    ("title", "expression"), [*monitoring.queries(), *((name, each["expr"]) for name, each in monitoring.alerts().items())]
)
def test_every_metric_of_a_query_is_exported(title: str, expression: str) -> None:
    assert monitoring.metrics_in(expression), title
    assert monitoring.metrics_in(expression) - monitoring.exported() == set()


def test_a_metric_that_no_process_exports_is_found() -> None:
    assert monitoring.metrics_in('rate(kubevirt_gone{a="up"}[5m]) / etcd_request_duration_seconds_bucket') == {
        "kubevirt_gone",
        "etcd_request_duration_seconds",
    }
    assert "kubevirt_gone" not in monitoring.exported()


def test_each_alert_has_a_runbook() -> None:
    text = (monitoring.ROOT / "docs" / "operating" / "alerts.md").read_text(encoding="utf-8")
    assert re.findall(r"^## (\w+)$", text, re.MULTILINE) == list(monitoring.alerts())
