"""Sources of images, by the field that names them."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Final

from importer import addresses, credentials, registry, signing
from importer.failures import ImportFailed
from importer.plan import Plan
from importer.reporting import Reporter
from importer.transfer import Transfer

DEFAULT_REGION: Final = "us-east-1"
"""For stores without regions."""


def pieces(plan: Plan, reporter: Reporter) -> Iterator[bytes]:
    """Yield the image's bytes from its source. Raises ImportFailed."""
    source = plan.source
    if http := source.get("http"):
        url = str(http["url"])
        headers = credentials.of_http(plan.secret, addresses.parse(url))
        return Transfer(headers, plan.authorities).pieces(url, reporter.downloaded)
    if s3 := source.get("s3"):
        url = str(s3["endpoint"]).rstrip("/") + signing.path_of(str(s3["bucket"]), str(s3["key"]))
        signed = credentials.of_s3(plan.secret, str(s3.get("region") or DEFAULT_REGION), addresses.parse(url), lambda: datetime.now(UTC))
        return Transfer(signed, plan.authorities).pieces(url, reporter.downloaded)
    if given := source.get("registry"):
        return registry.pieces(registry.parse(str(given["reference"])), plan.secret, plan.authorities, reporter.downloaded)
    raise ImportFailed("this version does not support this kind of source")
