"""Answers of servers to the plugin's requests."""

from __future__ import annotations

from apiserver.apis.meta import errors
from apiserver.kubectl import verbs


def test_a_503_without_a_status_names_a_remedy() -> None:
    error = verbs.refusal(503, b"service unavailable\n")
    assert isinstance(error, errors.ServiceUnavailable)
    assert error.message == (
        "the server answered 503: service unavailable; kube-apiserver may not reach virt-api: look at "
        "kubectl get apiservice v1alpha1.kubevirt.io and kubectl get pods -A -l kubevirt.io=virt-api"
    )


def test_other_answers_keep_their_words() -> None:
    status = b'{"kind": "Status", "code": 503, "reason": "ServiceUnavailable", "message": "no etcd"}'
    assert verbs.refusal(503, status).message == "no etcd"
    assert verbs.refusal(502, b"bad gateway").message == "the server answered 502: bad gateway"
