"""The files of this node's identity: ``tls.crt``, ``tls.key``, ``ca.crt`` and the operator's revocations.

Their tmpfs (``/run``), which only root can read, outlives the pod, so virt-handler can restart without kube-apiserver and
virt-controller.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from certs import files
from certs.reloading import Files

logger = logging.getLogger(__name__)

CERTIFICATE: Final = "tls.crt"
KEY: Final = "tls.key"
AUTHORITIES: Final = "ca.crt"
REVOKED: Final = "revoked.json"
_NAMES: Final = (CERTIFICATE, KEY, AUTHORITIES, REVOKED)


class Store:
    """The files of this node's identity, once :meth:`load` has read them; each change replaces all at once."""

    def __init__(self, directory: Path) -> None:
        self.files = Files.in_directory(directory)
        self._directory = directory
        self._held: dict[str, bytes] = {}

    def load(self) -> None:
        """Read the files of an earlier run; unreadable ones count as missing."""
        for name in _NAMES:
            try:
                self._held[name] = (self._directory / name).read_bytes()
            except OSError:
                self._held.pop(name, None)

    def get(self, name: str) -> bytes:
        """Return a file's content; empty if missing."""
        return self._held.get(name, b"")

    def put(self, changed: Mapping[str, bytes]) -> None:
        """Write these files and keep the others. Raises OSError."""
        new = {**self._held, **changed}
        if new == self._held:
            return
        self._directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._directory.chmod(0o700)
        files.publish(self._directory, new)
        self._held = new

    def revoked(self) -> dict[str, str]:
        """Return the stored revocations, in the form of the ConfigMap's data; empty if malformed."""
        try:
            found = json.loads(self.get(REVOKED) or b"{}")
        except ValueError:
            logger.warning("the stored revocations cannot be read", extra={"file": str(self._directory / REVOKED)})
            return {}
        return {str(key): str(value) for key, value in found.items()} if isinstance(found, dict) else {}
