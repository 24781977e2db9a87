"""Sources of disks that a storage plugin sets up on the node."""

from __future__ import annotations

from typing import Final

from pydantic import Field

from apiserver.apis.meta.schema import Model
from apiserver.apis.meta.validation import FieldError, Path, forbidden
from apiserver.apis.virt.hardware import plugin_disks as hardware
from apiserver.apis.virt.v1alpha1.domain import plugins
from apiserver.apis.virt.v1alpha1.domain.rules import Object

FIELDS: Final = frozenset({"plugin", "options", "sizeLimit"})


class PluginSource(Model):
    """A disk's storage plugin, and options for it."""

    plugin: str | None = Field(None, description="Plugin: the plugin's name, which the cluster's administrator must allow.")
    options: dict[str, str] | None = Field(
        None,
        description="Plugin: options of the disk; see the plugin's documentation. All users with read access to machines can read them. "
        "Default none.",
    )


def validate_source(source: Object, path: Path) -> list[FieldError]:
    """Return errors in plugin and options of a disk's source."""
    return plugins.validate_plugin({**source, "type": hardware.PLUGIN}, path, of_type=hardware.PLUGIN)


def validate(disk: Object, path: Path) -> list[FieldError]:
    """Return errors for settings that a plugin disk from ``hardware.disks.defaulted`` cannot have; ignore other disks."""
    if not hardware.is_plugin(disk) or (disk.get("driver") or {}).get("io") is None:
        return []
    return [
        forbidden(
            path.child("driver", "io"), f"may not be set for a disk of type {hardware.PLUGIN}: the plugin decides how QEMU opens the disk"
        )
    ]
