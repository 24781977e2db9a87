"""A large cache of documents' processors and memory, for lists of machines."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from apiserver.apis.virt.domainxml import parsing, reading
from apiserver.apis.virt.domainxml.reading import Reading

REMEMBERED: Final = 16_384
"""Some 6 MB."""


@dataclass(frozen=True, slots=True)
class Size:
    """Memory and processors (sockets, cores, threads) in a domain's XML."""

    memory_bytes: int
    topology: tuple[int, int, int]


class Sizes:
    """A cache of ``Size`` by XML documents' digests."""

    def __init__(self, read: Callable[[str], Reading] = reading.read_uncached, most: int = REMEMBERED) -> None:
        self._read = read
        self._most = most
        self._sizes: dict[bytes, Size | None] = {}

    def __len__(self) -> int:
        return len(self._sizes)

    def of(self, text: str) -> Size | None:
        """Return the ``Size`` (memory and processors) in a domain's XML, cached; None if invalid."""
        digest = hashlib.sha256(text.encode(errors="surrogatepass")).digest()
        if digest in self._sizes:
            return self._sizes[digest]
        try:
            found = self._read(text)
        except parsing.Malformed:
            size = None
        else:
            size = Size(found.memory_bytes, found.topology)
        while len(self._sizes) >= self._most:
            del self._sizes[next(iter(self._sizes))]
        self._sizes[digest] = size
        return size


SIZES: Final = Sizes()
