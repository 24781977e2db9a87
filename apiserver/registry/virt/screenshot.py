"""The subresource ``screenshot``: the guest's screen."""

from __future__ import annotations

from typing import ClassVar

from apiserver.apis.meta.objects import Object
from apiserver.apis.meta.resources import Resource
from apiserver.apis.virt.places import names
from apiserver.apis.virt.spec import screenshot
from apiserver.apis.virt.v1alpha1.screenshot import VirtualMachineScreenshot
from apiserver.registry.virt.reads import HandlerRead


class Screenshot(HandlerRead):
    """Serves ``screenshot``."""

    name = screenshot.NAME
    answers = Resource(names.GROUP, names.VERSION, "virtualmachinescreenshots", "VirtualMachineScreenshot")
    model = VirtualMachineScreenshot
    max_bytes: ClassVar[int] = 5 << 20
    max_waiting: ClassVar[int] = 8

    def fields(self, answer: Object) -> Object:
        """Return ``{"png": base64}``, checked; raises ValueError."""
        text = answer.get(screenshot.FIELD)
        if not isinstance(text, str):
            raise ValueError(f"{screenshot.FIELD} must be a string")  # noqa: TRY004  # what read expects of what is no such answer
        return screenshot.parse(text)
