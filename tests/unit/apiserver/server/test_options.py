from __future__ import annotations

from dataclasses import fields

import pytest

from apiserver.endpoints.verbs.streamlimits import StreamLimits
from apiserver.server import options

TLS = ["--tls-cert-file=a", "--tls-private-key-file=b"]


def test_the_flags_of_a_release_are_read() -> None:
    given = options.parse([*TLS, "--etcd-servers=https://a:1,https://b:2", "--shutdown-delay-duration=1m30s", "--log-level=INFO"])
    assert given.etcd_servers == ("https://a:1", "https://b:2")
    assert given.shutdown_delay_duration == 90
    assert given.authorization_mode == "Delegated"
    assert given.asks_cluster


def test_a_server_alone_asks_no_cluster() -> None:
    given = options.parse([*TLS, "--storage=memory", "--authentication-skip-lookup", "--authorization-mode=AlwaysAllow"])
    assert not given.asks_cluster


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        TLS,
        ["--etcd-servers=x", "--tls-cert-file=a"],
        ["--etcd-servers=x", "--feature-gates=WatchList=true"],
        ["--etcd-servers=x", "--watch-cache=true"],
        ["--etcd-servers=x", "--enable-priority-and-fairness=false"],
        ["--etcd-servers=x", "--no-such-flag=1"],
        ["--etcd-servers=x", "--egress-selector-config-file=y"],
        ["--etcd-servers=x", "--audit-log-path=-"],
        [*TLS, "--etcd-servers=x", "--etcd-cafile=c"],
        [*TLS, "--storage=memory", "--shutdown-delay-duration=soon"],
        [*TLS, "--storage=disk"],
        ["--etcd-servers=x", "--cors-allowed-origins=.*"],
        ["--etcd-servers=x", "--cors-allowed-origins=^https://(a$"],
        [*TLS, "--storage=memory", "--max-streams=-1"],
        [*TLS, "--storage=memory", "--max-streams-per-user=many"],
    ],
)
def test_flags_that_do_not_fit_together_are_refused(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        options.parse(arguments)
    assert "virt-api: error" in capsys.readouterr().err


def test_help_explains_every_flag() -> None:
    parser = options._parser()
    assert all(action.help for action in parser._actions)


def test_the_arguments_of_sample_apiserver_are_enough() -> None:
    given = options.parse(["--etcd-servers=http://localhost:2379"])
    assert (given.secure_port, given.tls_cert_file, given.authorization_mode) == (443, None, "Delegated")


def test_flags_that_operators_copy_are_taken() -> None:
    given = options.parse(
        [
            "--secure-port=6443", "--tls-cert-file=a", "--tls-private-key-file=b", "--cert-dir=c", "--etcd-servers=x", "--etcd-cafile=d",
            "--etcd-certfile=e", "--etcd-keyfile=f", "--kubeconfig=g", "--authentication-kubeconfig=h", "--authorization-kubeconfig=i",
            "--encryption-provider-config=k", "--v=4", "--anonymous-auth=false", "--authentication-skip-lookup=true",
            "--request-timeout=30s",
            "--max-requests-inflight=5", "--authorization-webhook-cache-authorized-ttl=5s", "--shutdown-delay-duration=10s",
        ]
    )  # fmt: skip
    assert (given.secure_port, given.log_level, given.anonymous_auth, given.request_timeout) == (6443, "debug", False, 30)
    assert (given.authentication_kubeconfig, given.authorization_webhook_cache_authorized_ttl) == ("h", 5)
    assert (given.max_requests_inflight, given.max_mutating_requests_inflight) == (5, 200)
    assert given.authentication_skip_lookup
    assert not options.parse(["--etcd-servers=x", "--authentication-skip-lookup=false"]).authentication_skip_lookup


def test_streams_are_bounded_unless_it_is_said_otherwise() -> None:
    alone = [*TLS, "--storage=memory"]
    assert options.parse(alone).stream_limits == StreamLimits()
    assert all(getattr(StreamLimits(), each.name) for each in fields(StreamLimits))
    given = ["--max-streams=3", "--max-streams-per-user=2", "--max-streams-per-user-and-object=0"]
    assert options.parse([*alone, *given]).stream_limits == StreamLimits(3, 2, 0)
