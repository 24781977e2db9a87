"""Find the disk among the layers of a container image. Pure.

Layers are read from the last to the first, because upper ones hide files below by whiteouts
(https://github.com/opencontainers/image-spec/blob/main/layer.md) and by files of the same name.
"""

from __future__ import annotations

from typing import Final

from importer.failures import ImportFailed

DIRECTORY: Final = "disk"
MAX_NAMES: Final = 10_000
_WHITEOUT: Final = ".wh."
_OPAQUE: Final = ".wh..wh..opq"

Name = tuple[str, ...]


class Layers:
    """Names that the layers read so far hide in those below."""

    def __init__(self) -> None:
        self._gone: set[Name] = set()
        self._opaque: set[Name] = set()
        self._gone_below: set[Name] = set()
        self._opaque_below: set[Name] = set()

    def is_disk(self, member: str, *, is_file: bool, is_directory: bool) -> bool:
        """Return whether a member of the layer is a disk that no upper layer hides; remember what the member hides in layers below.

        Raises ImportFailed for too many names.
        """
        name = tuple(part for part in member.split("/") if part not in ("", "."))
        if not name or ".." in name:
            return False
        *directories, last = name
        if last == _OPAQUE:
            self._remember(self._opaque_below, tuple(directories))
        elif last.startswith(_WHITEOUT):
            self._remember(self._gone_below, (*directories, last.removeprefix(_WHITEOUT)))
        elif not is_directory:
            self._remember(self._gone_below, name)
        is_shown = is_file and not is_directory and len(name) > 1 and name[0] == DIRECTORY and not self._is_hidden(name)
        return is_shown and not any(part.startswith(".") for part in name)

    def end_layer(self) -> None:
        """Hide the remembered names in the layers below, which come next."""
        self._gone |= self._gone_below
        self._opaque |= self._opaque_below
        self._gone_below, self._opaque_below = set(), set()

    def _is_hidden(self, name: Name) -> bool:
        above = [name[:length] for length in range(len(name))]
        return name in self._gone or any(each in self._gone or each in self._opaque for each in above)

    def _remember(self, names: set[Name], name: Name) -> None:
        if name[:1] in ((), (DIRECTORY,)):
            names.add(name)
        if len(names) > MAX_NAMES:
            raise ImportFailed(f"the image has more than {MAX_NAMES} files below {DIRECTORY}/")
