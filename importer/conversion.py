"""Convert a qcow2 image by qemu-img, after checking its header."""

from __future__ import annotations

import json
import resource
import subprocess
from pathlib import Path
from typing import Final

from importer.failures import ImportFailed

MEMORY_BYTES: Final = 1 << 30
"""Address space of qemu-img, mostly unused."""
SECONDS: Final = 6 * 3600.0
"""Time after which a conversion counts as hung."""
MAX_WORDS: Final = 400


def convert(qemu_img: str, source: Path, target: Path, size: int) -> None:
    """Write the disk (``size`` bytes) of a qcow2 image with a checked header into a file. Raises ImportFailed with qemu-img's output."""
    # no probing of the format, and no references: "backing"
    image = {"driver": "qcow2", "backing": None, "file": {"driver": "file", "filename": str(source)}}
    command = [qemu_img, "convert", "-q", "-O", "raw", "-S", "64k", "-W", "-m", "4", f"json:{json.dumps(image)}", str(target)]
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=SECONDS,
            check=False,
            env={"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8"},
            preexec_fn=lambda: _confine(size),  # this process has one thread
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ImportFailed(f"qemu-img could not convert the image: {error}"[:MAX_WORDS]) from error
    if done.returncode:
        said = done.stdout[-MAX_WORDS:].decode(errors="replace").replace(str(source), "image").replace(str(target), "disk")
        words = " ".join(said.split()) or f"ended with {done.returncode}"
        raise ImportFailed(f"qemu-img could not convert the image; it may be damaged, or larger than the claim: {words}"[:MAX_WORDS])


def _confine(size: int) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
