"""Takes screenshots of guests by their untrusted virt-launchers: bounded in size, time and number."""

from __future__ import annotations

import asyncio
import base64
from pathlib import Path
from typing import Final
from weakref import WeakValueDictionary

from apiserver.apis.meta import errors
from apiserver.apis.meta.lines import one_line
from apiserver.apis.virt.places import layout
from apiserver.apis.virt.spec import screenshot
from handler.pods import places

SECONDS: Final = 30.0
"""Less than virt-api waits."""
AT_ONCE: Final = 4
"""Pictures in memory at a time, of all guests."""
_PIECE_BYTES: Final = 64 << 10


class Screenshots:
    """Takes screenshots of this node's guests, at most ``AT_ONCE`` at a time."""

    def __init__(self, kubelet: Path = places.KUBELET_DIRECTORY, *, seconds: float = SECONDS) -> None:
        self._kubelet = kubelet
        self._seconds = seconds
        self._turns = asyncio.Semaphore(AT_ONCE)
        self._pods = WeakValueDictionary[str, asyncio.Lock]()
        """One turn of the node per guest, because its virt-launcher may not answer."""

    async def take(self, pod_uid: str) -> str:
        """Return an untrusted picture of a guest's screen as PNG in base64.

        Raises StatusError: Conflict if there is none, or too many are being taken; BadRequest if virt-launcher is too old; Timeout or
        ServiceUnavailable without an answer.
        """
        alone = self._pods.setdefault(pod_uid, asyncio.Lock())
        try:
            async with asyncio.timeout(self._seconds), alone, self._turns:
                content = await self._content(pod_uid)
        except TimeoutError as error:
            raise errors.Timeout(
                f"its virt-launcher was asked for a screenshot and has not answered within {self._seconds:.0f} s"
            ) from error
        except FileNotFoundError as error:
            raise errors.BadRequest("its virt-launcher is of a version that has no screenshot: start the machine again") from error
        except OSError as error:
            raise errors.ServiceUnavailable(f"its virt-launcher cannot take a screenshot: {error.strerror or error}") from error
        if not content.startswith(screenshot.SIGNATURE):
            said = one_line(content[: screenshot.MAX_TEXT].decode(errors="replace"), screenshot.MAX_TEXT)
            raise errors.Conflict(said or "too many screenshots are being taken")
        return base64.b64encode(content).decode()

    async def _content(self, pod_uid: str) -> bytes:
        with places.run_directory(pod_uid, self._kubelet) as directory:
            link = places.connect(directory, layout.SCREENSHOT_SOCKET)
        reader, writer = await asyncio.open_unix_connection(sock=link, limit=_PIECE_BYTES)
        content = bytearray()
        try:
            while len(content) <= screenshot.MAX_BYTES and (piece := await reader.read(_PIECE_BYTES)):
                content += piece
        finally:
            writer.close()
        return bytes(content)
