"""Sources of images, by the field that names them."""

from __future__ import annotations

from collections.abc import Iterator

from importer import addresses, credentials
from importer.failures import ImportFailed
from importer.plan import Plan
from importer.telling import Telling
from importer.transfer import Transfer


def pieces(plan: Plan, told: Telling) -> Iterator[bytes]:
    """Yield the bytes of the image as they are at its source.

    Raises:
        ImportFailed: they do not come.
    """
    source = plan.source
    if http := source.get("http"):
        url = str(http["url"])
        headers = credentials.of_http(plan.secret, addresses.parse(url))
        return Transfer(headers, plan.authorities).pieces(url, told.downloaded)
    raise ImportFailed("the source is none that this version knows")
