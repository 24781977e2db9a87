"""``python -m tests.cuts.client ADDRESS PER_SECOND``: sends this many HTTP requests per second, each on a new connection.

A line has a time in seconds, by the machine's monotonic clock, and ``ok`` or the failure.
"""

from __future__ import annotations

import asyncio
import errno
import sys
import time
from typing import Final

PER_SECOND = 10
PATIENCE_SECONDS = 3
WORD: Final = "counted-by-the-guest"
OK: Final = "ok"
ANOTHER: Final = "another answer"
CUT_OFF: Final = "cut off"
"""The guest left the pod during the answer, or before it."""
NOBODY: Final = frozenset(errno.errorcode[each] for each in (errno.ECONNREFUSED, errno.EHOSTUNREACH, errno.ENETUNREACH))


async def ask(address: str) -> None:
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            reader, writer = await asyncio.open_connection(address, 80)
            try:
                writer.write(f"GET / HTTP/1.0\r\nHost: {address}\r\n\r\n".encode())
                said = told(await reader.read())
            finally:
                writer.close()
    except TimeoutError:
        said = TimeoutError.__name__
    except OSError as error:
        said = errno.errorcode.get(error.errno or 0, type(error).__name__)
    print(f"{time.monotonic():.3f} {said}", flush=True)


def told(answer: bytes) -> str:
    head, _, body = answer.partition(b"\r\n\r\n")
    status, end, _ = head.partition(b"\r\n")
    if end and b" 200 " not in f"{status.decode(errors='replace')} ".encode():
        return f"{ANOTHER}: {answer[:60]!r}"
    if not f"{WORD}\n".encode().startswith(body) or not (answer.startswith(b"HTTP/") or b"HTTP/".startswith(answer)):
        return f"{ANOTHER}: {answer[:60]!r}"
    return OK if body.strip() == WORD.encode() else CUT_OFF


async def main(address: str, per_second: int) -> None:
    async with asyncio.TaskGroup() as group:
        while True:
            group.create_task(ask(address))
            await asyncio.sleep(1 / per_second)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2])))
