"""Commands of the guest agent, for probes and ``spec.lifecycle``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from pydantic import Field

from apiserver.apis.meta.schema import ATOMIC, Model
from apiserver.apis.meta.validation import FieldError, Path, invalid, required, too_long
from apiserver.apis.virt.v1alpha1.domain.rules import validate_count

MAX_WORDS: Final = 64
MAX_COMMAND: Final = 4096
"""Characters of all words."""


class ExecAction(Model):
    """A command that the guest agent runs. Exit code 0 is a success."""

    command: list[str] = Field(
        description="The program and its arguments. It runs without a shell, with the agent's rights.", json_schema_extra=ATOMIC
    )


class LifecycleHandler(Model):
    """A command at a moment of the guest's life."""

    exec: ExecAction | None = Field(None, description="A command in the guest.")


class Lifecycle(Model):
    """Commands at moments of the guest's life."""

    pre_stop: LifecycleHandler | None = Field(
        None,
        alias="preStop",
        description="Before the guest is asked to shut down, for at most half of the grace period. If it fails, the guest shuts down "
        "anyway, with the Event FailedPreStopHook. A power-off, a crash and a shutdown by the guest itself do not wait for it.",
    )


def validate(action: Mapping[str, Any] | None, path: Path) -> list[FieldError]:
    """Return errors in the command of an ``exec`` at ``path``; none for None."""
    words = (action or {}).get("command")
    if action is None or words is None:
        return []
    place = path.child("command")
    if not words or not words[0]:
        return [required(place, "name a program")]
    if wrong := [position for position, each in enumerate(words) if "\0" in each]:
        return [invalid(place.index(wrong[0]), words[wrong[0]], "must not contain a null character")]
    return validate_count(words, MAX_WORDS, place) or ([too_long(place, MAX_COMMAND)] if sum(map(len, words)) > MAX_COMMAND else [])


def validate_lifecycle(spec: Mapping[str, Any], path: Path) -> list[FieldError]:
    """Return errors in ``lifecycle``; ``path`` is the spec's."""
    hook = (spec.get("lifecycle") or {}).get("preStop")
    if hook is None:
        return []
    place = path.child("lifecycle", "preStop")
    return validate(hook["exec"], place.child("exec")) if hook.get("exec") is not None else [required(place.child("exec"), "")]
