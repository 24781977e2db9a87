"""Requests to admission plug-ins, with objects in the stored version."""

from __future__ import annotations

from typing import Any

from apiserver.registry.generic.admission import Attributes


def asking(*given: Any, **more: Any) -> Attributes:
    return Attributes(*given, **more)
