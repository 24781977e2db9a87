"""``kubectl virt screenshot``: write a picture of the guest's screen to a file."""

from __future__ import annotations

import base64
import os
import sys
from pathlib import Path

from apiserver.apis.virt.places.resources import VIRTUAL_MACHINES
from apiserver.apis.virt.spec import screenshot
from apiserver.kubectl import verbs
from apiserver.kubectl.access import Access
from apiserver.kubectl.messages import Failure


async def take(access: Access, name: str, file: str) -> None:
    """Write a screenshot to ``file``; ``-`` is standard output, but no terminal. Raises Failure."""
    if file == "-" and os.isatty(1):
        raise Failure("error: a picture is not for a terminal: name a file with -o")
    doing = f"take a screenshot of virtual machine {access.namespace}/{name}"
    answer = await verbs.request(access, "GET", VIRTUAL_MACHINES.path(access.namespace, name, screenshot.NAME), doing)
    png = decoded(str(answer.get(screenshot.FIELD) or ""), doing)
    _write(file, png)


def _write(file: str, png: bytes) -> None:
    try:
        if file == "-":
            sys.stdout.buffer.write(png)
        else:
            Path(file).write_bytes(png)
    except BrokenPipeError:
        raise
    except OSError as error:
        raise Failure(f"error: write {file}: {error.strerror}") from error


def decoded(text: str, doing: str) -> bytes:
    """Return an answer's PNG picture, or raise Failure."""
    try:
        return base64.b64decode(str(screenshot.parse(text)[screenshot.FIELD]))
    except ValueError as error:
        raise Failure(f"error: cannot {doing}: the answer is no picture: {error}") from error
