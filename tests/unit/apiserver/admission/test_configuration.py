"""ADM-09: the admission configuration file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from apiserver.admission import configuration
from apiserver.admission.configuration import ConfigurationError

OUTER = {"apiVersion": "apiserver.config.k8s.io/v1", "kind": "AdmissionConfiguration"}
INNER = {"apiVersion": "apiserver.config.k8s.io/v1", "kind": "WebhookAdmissionConfiguration", "kubeConfigFile": "/etc/hooks"}


def written(path: Path, document: Any) -> Path:
    path.write_text(json.dumps(document))
    return path


def test_plugins_are_configured_inline_or_in_a_file_beside(tmp_path: Path) -> None:
    written(tmp_path / "inner", INNER)
    plugins = [{"name": "A", "configuration": INNER}, {"name": "B", "path": "inner"}, {"name": "C"}]
    found = configuration.read(written(tmp_path / "outer", OUTER | {"plugins": plugins}))
    assert found == {"A": INNER, "B": INNER}
    assert configuration.webhook_kubeconfig(found["B"], "B") == Path("/etc/hooks")
    assert configuration.read(None) == {}
    assert configuration.webhook_kubeconfig(None, "A") is None


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ([], "a configuration is a mapping"),
        (OUTER | {"kind": "Nope"}, "it is apiserver.config.k8s.io/v1 Nope, not"),
        (OUTER | {"plugin": []}, "unknown fields plugin"),
        (OUTER | {"plugins": [{}]}, "every plug-in needs a name"),
        (OUTER | {"plugins": [{"name": "A", "config": {}}]}, "unknown fields config"),
        (OUTER | {"plugins": [{"name": "A", "path": "absent"}]}, "unable to read admission control configuration from"),
    ],
)
def test_a_wrong_file_is_refused(tmp_path: Path, document: Any, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        configuration.read(written(tmp_path / "outer", document))


@pytest.mark.parametrize(
    ("inner", "message"),
    [
        (INNER | {"kubeConfigFile": "relative"}, 'kubeConfigFile: Invalid value: "relative": must be an absolute file path'),
        (INNER | {"staticManifestsDir": "/x"}, "staticManifestsDir: Forbidden"),
        (INNER | {"kind": "X"}, "it is apiserver.config.k8s.io/v1 X"),
    ],
)
def test_a_wrong_configuration_of_webhooks_is_refused(inner: Any, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        configuration.webhook_kubeconfig(inner, "A")
