"""Names and options of plugins on nodes. ``v1alpha1.allowed`` has the allowed plugins."""

from __future__ import annotations

from apiserver.apis.meta.validation import FieldError, Path, forbidden, invalid, required, too_many
from apiserver.apis.virt.spec import plugins
from apiserver.apis.virt.v1alpha1.domain.rules import Object


def validate_plugin(device: Object, path: Path, *, of_type: str) -> list[FieldError]:
    """Return errors in ``plugin`` and ``options`` of a device; only devices of type ``of_type`` may have them."""
    if device["type"] != of_type:
        given = (each for each in ("plugin", "options") if device.get(each) is not None)
        return [forbidden(path.child(each), f"may be set only for type {of_type}") for each in given]
    name, options = device.get("plugin"), device.get("options") or {}
    found: list[FieldError] = []
    if not name:
        found.append(required(path.child("plugin"), f"type {of_type} requires the name of a plugin"))
    elif not plugins.is_name(name):
        found.append(invalid(path.child("plugin"), name, f"must be the name of a plugin: at most {plugins.MAX_NAME} of a-z, 0-9 and -"))
    path = path.child("options")
    if len(options) > plugins.MAX_OPTIONS:
        return [*found, too_many(path, len(options), plugins.MAX_OPTIONS)]
    for key, value in options.items():
        if not plugins.is_option_name(key):
            words = "must begin and end with a letter or digit, and have at most 63 of these and - _ ."
            found.append(invalid(path, key, words))
        elif problem := plugins.option_problem(value):
            found.append(invalid(path.key(key), value, problem))
    return found
