from __future__ import annotations

import json
from pathlib import Path

import launcher


def entry_point() -> list[str]:
    containerfile = Path(launcher.__file__).parents[1] / "images/virt-launcher/Containerfile"
    line = next(line for line in containerfile.read_text().splitlines() if line.startswith("ENTRYPOINT"))
    command: list[str] = json.loads(line.removeprefix("ENTRYPOINT"))
    return command
