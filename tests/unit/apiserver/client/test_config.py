from __future__ import annotations

from pathlib import Path

import pytest

from apiserver.client.config import Config, ConfigError

KUBECONFIG = """
apiVersion: v1
kind: Config
current-context: one
contexts:
- {name: one, context: {cluster: c, user: u, namespace: work}}
- {name: plugin, context: {cluster: c, user: p}}
clusters:
- {name: c, cluster: {server: "https://api.example:6443/", certificate-authority: ca.crt, tls-server-name: other}}
users:
- {name: u, user: {client-certificate-data: Y2VydA==, client-key-data: a2V5}}
- {name: p, user: {exec: {command: get-token}}}
"""


@pytest.fixture
def kubeconfig(tmp_path: Path) -> Path:
    path = tmp_path / "config"
    path.write_text(KUBECONFIG)
    return path


def test_a_kubeconfig_names_server_certificates_and_namespace(kubeconfig: Path) -> None:
    config = Config.load(str(kubeconfig))
    assert config.server == "https://api.example:6443"
    assert config.ca_file == str(kubeconfig.parent / "ca.crt")
    assert (config.client_cert_data, config.client_key_data) == (b"cert", b"key")
    assert (config.namespace, config.tls_server_name) == ("work", "other")
    assert "cert" not in repr(config)


def test_credential_plugin_user_is_refused_with_the_reason(kubeconfig: Path) -> None:
    with pytest.raises(ConfigError, match="credential plugin"):
        Config.from_kubeconfig(kubeconfig, context="plugin")


def test_an_unknown_context_is_named(kubeconfig: Path) -> None:
    with pytest.raises(ConfigError, match="no context named 'two'"):
        Config.from_kubeconfig(kubeconfig, context="two")


def test_a_pod_finds_its_service_account(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("t")
    (tmp_path / "namespace").write_text("kubevirt\n")
    environ = {"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "6443"}
    config = Config.in_cluster(tmp_path, environ)
    assert config.server == "https://[fd00::1]:6443"
    assert (config.namespace, config.token_file) == ("kubevirt", str(tmp_path / "token"))


def test_outside_of_a_pod_a_kubeconfig_is_asked_for(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="set a kubeconfig"):
        Config.in_cluster(tmp_path, {})
