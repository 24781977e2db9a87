"""``--admission-control-config-file``: an ``AdmissionConfiguration`` with what single plug-ins take (``pkg/admission/config.go``)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

import yaml

from apiserver.apis.meta.objects import Json, Object

_GROUP: Final = "apiserver.config.k8s.io"
_ADMISSION: Final = frozenset({(f"{_GROUP}/v1", "AdmissionConfiguration"), ("apiserver.k8s.io/v1alpha1", "AdmissionConfiguration")})
_WEBHOOK: Final = frozenset({(f"{_GROUP}/v1", "WebhookAdmissionConfiguration"), (f"{_GROUP}/v1alpha1", "WebhookAdmission")})


class ConfigurationError(ValueError):
    """A file of the admission configuration cannot be used; the message says which, and why."""


def read(path: Path | None) -> dict[str, Object]:
    """Return the configurations of plug-ins by their names.

    Raises:
        ConfigurationError: unreadable, of another kind, or with fields that do not exist.
    """
    if path is None:
        return {}
    document = _load(path)
    _expect(document, _ADMISSION, {"plugins"}, path)
    found = {}
    for each in document.get("plugins") or ():
        if not isinstance(each, dict) or not isinstance(each.get("name"), str):
            raise ConfigurationError(f"{path}: every plug-in needs a name")
        _known(each, {"name", "path", "configuration"}, path)
        if (given := each.get("configuration")) is not None:
            found[each["name"]] = _mapping(given, path)
        elif each.get("path"):
            found[each["name"]] = _load(path.parent / each["path"])
    return found


def webhook_kubeconfig(configuration: Object | None, plugin: str) -> Path | None:
    """Return the kubeconfig with our credentials for webhooks, from the configuration of a webhook plug-in.

    Raises:
        ConfigurationError: of another kind, or not an absolute path.
    """
    if configuration is None:
        return None
    _expect(configuration, _WEBHOOK, {"kubeConfigFile", "staticManifestsDir"}, plugin)
    if configuration.get("staticManifestsDir"):
        raise ConfigurationError(f"{plugin}: staticManifestsDir: Forbidden: manifests on disk are not supported")
    given = configuration.get("kubeConfigFile") or ""
    if given and not Path(given).is_absolute():
        raise ConfigurationError(f'{plugin}: kubeConfigFile: Invalid value: "{given}": must be an absolute file path')
    return Path(given) if given else None


def _load(path: Path) -> Object:
    try:
        return _mapping(yaml.safe_load(path.read_text()), path)
    except OSError as error:
        raise ConfigurationError(f"unable to read admission control configuration from {path}: {error.strerror}") from error
    except yaml.YAMLError as error:
        raise ConfigurationError(f"{path} is no YAML: {error}") from error


def _mapping(value: Json, where: object) -> Object:
    if not isinstance(value, dict):
        raise ConfigurationError(f"{where}: a configuration is a mapping")
    return value


def _expect(document: Object, kinds: frozenset[tuple[str, str]], fields: set[str], where: object) -> None:
    kind = (str(document.get("apiVersion")), str(document.get("kind")))
    if kind not in kinds:
        wanted = " or ".join(sorted(f"{version} {name}" for version, name in kinds))
        raise ConfigurationError(f"{where}: it is {kind[0]} {kind[1]}, not {wanted}")
    _known(document, fields | {"apiVersion", "kind"}, where)


def _known(document: Mapping[str, Json], fields: set[str], where: object) -> None:
    if unknown := sorted(str(each) for each in document.keys() - fields):
        raise ConfigurationError(f"{where}: unknown fields {', '.join(unknown)}")
