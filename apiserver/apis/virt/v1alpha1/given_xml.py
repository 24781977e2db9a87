"""``VirtualMachineDomainXML``: the answer of the subresource ``domainxml``."""

from __future__ import annotations

from pydantic import Field

from apiserver.apis.meta.schema import Kind


class VirtualMachineDomainXML(Kind):
    """The domain XML of a running machine, as its pod prepared it for libvirt, without secrets."""

    xml: str | None = Field(
        None,
        description="The document: what spec.domain became, or spec.domainXML with its placeholders filled in, byte for byte. Of a machine "
        "that was migrated, what its present pod was prepared with.",
    )
