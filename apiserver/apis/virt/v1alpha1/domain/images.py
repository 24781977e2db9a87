"""Container images that a machine's pod mounts."""

from __future__ import annotations

from typing import Literal

PullPolicy = Literal["Always", "IfNotPresent", "Never"]
