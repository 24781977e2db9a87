"""GPUs of the node: ``<hostdev>``."""

from __future__ import annotations

from launcher.domain import passed_through
from launcher.domain.definition import Definition, Tree


def append(tree: Tree, definition: Definition) -> None:
    """Append a ``<hostdev>`` for each of ``devices.gpus``."""
    passed_through.append(tree, definition, "gpus")
