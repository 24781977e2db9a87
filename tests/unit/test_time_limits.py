from __future__ import annotations

from controller.evictions import admission, looks
from controller.runtime.reconciling import RECONCILE_SECONDS
from handler.network import setup
from handler.storage import adding
from launcher.hypervisor import connection
from tests.fakes import chart

KUBECTL_DRAIN_SECONDS = 5.0


def test_a_review_is_answered_before_kube_apiserver_gives_up() -> None:
    of_webhooks = [each for each in chart.objects() if each["kind"] == "ValidatingWebhookConfiguration"]
    (webhook,) = (each for found in of_webhooks if found["metadata"]["name"] == "evictions.kubevirt.io" for each in found["webhooks"])
    assert webhook["timeoutSeconds"] > admission.SECONDS


def test_a_look_serves_three_repetitions_of_a_drain() -> None:
    assert 3 * KUBECTL_DRAIN_SECONDS < looks.SECONDS < 4 * KUBECTL_DRAIN_SECONDS


def test_a_pass_reports_slow_plugins_before_its_own_timeout() -> None:
    assert setup.PREPARE_SECONDS + adding.DEFAULT_LIMITS.all_seconds < RECONCILE_SECONDS


def test_a_hung_libvirtd_is_noticed_within_a_call() -> None:
    interval, count = connection.KEEPALIVE
    assert interval * (count + 1) < connection.CALL_SECONDS
