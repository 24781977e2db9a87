"""``VirtualMachineScreenshot``: the answer of the subresource ``screenshot``."""

from __future__ import annotations

from pydantic import Field

from apiserver.apis.meta.schema import Kind


class VirtualMachineScreenshot(Kind):
    """A picture of a running machine's screen."""

    png: str | None = Field(None, description="The picture of the first screen, as PNG in base64.")
