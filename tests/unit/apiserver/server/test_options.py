"""Flags."""

from __future__ import annotations

import pytest

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
        [*TLS, "--etcd-servers=x", "--etcd-cafile=c"],
        [*TLS, "--storage=memory", "--shutdown-delay-duration=soon"],
        [*TLS, "--storage=disk"],
    ],
)
def test_flags_that_do_not_fit_together_are_refused(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        options.parse(arguments)
    assert "virt-api: error" in capsys.readouterr().err


def test_help_explains_every_flag() -> None:
    parser = options._parser()
    assert all(action.help for action in parser._actions)
