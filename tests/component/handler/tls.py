"""Certificates for the tests of the agent's servers."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

from certs import files, issuing
from certs.issuing import Profile
from certs.reloading import Files


class Authority:
    """A CA that hands out what a Secret would hold."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._now = datetime.now(UTC)
        self._pair = issuing.new_authority("kubevirt-ca", timedelta(days=1), self._now)

    def issue(self, common_name: str) -> Files:
        """Return the files of a certificate with this name."""
        leaf = issuing.issue(
            self._pair, Profile(common_name, dns_names=(common_name,), server=True, client=True), timedelta(days=1), self._now
        )
        directory = self._root / common_name
        files.publish(directory, {"tls.crt": leaf.certificate, "tls.key": leaf.key, "ca.crt": self._pair.certificate})
        return Files.in_directory(directory)
