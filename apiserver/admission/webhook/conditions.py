"""``matchConditions``: CEL expressions that must all hold before a webhook call."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from apiserver.admission.errors import forbidden
from apiserver.admission.metrics import AdmissionMetrics, Type
from apiserver.admission.webhook.registrations import Expression, Webhook
from apiserver.admission.webhook.review import VersionedAttributes

logger = logging.getLogger(__name__)

MAX_COMPILED: Final = 1000


class ConditionsFailed(Exception):
    """The evaluation of ``count`` conditions failed, and none is false."""

    def __init__(self, failures: Sequence[str]) -> None:
        super().__init__(failures[0] if len(failures) == 1 else f"[{', '.join(failures)}]")
        self.count = len(failures)


class Conditions(Protocol):
    """The compiled conditions of one webhook."""

    async def hold(self, versioned: VersionedAttributes) -> bool:
        """Return whether all hold. Raises ConditionsFailed if the evaluation of some fails, and none is false."""
        ...


Compile = Callable[[Sequence[Expression]], Conditions]


class Matcher:
    """Evaluates webhooks' conditions, each set compiled once."""

    def __init__(self, compile_: Compile, metrics: AdmissionMetrics, type_: Type) -> None:
        self._compile = compile_
        self._metrics = metrics
        self._type = type_
        self._compiled: dict[tuple[Expression, ...], Conditions] = {}

    async def wanted(self, webhook: Webhook, versioned: VersionedAttributes) -> bool:
        """Return whether the webhook's conditions hold.

        If their evaluation fails, raises Forbidden for a webhook that fails closed, else returns False.
        """
        if not webhook.conditions:
            return True
        conditions = self._compiled.get(webhook.conditions)
        if conditions is None:
            if len(self._compiled) >= MAX_COMPILED:
                self._compiled.clear()
            conditions = self._compiled[webhook.conditions] = self._compile(webhook.conditions)
        about = (webhook.name, "webhook", self._type, versioned.attributes.operation)
        began = time.perf_counter()
        try:
            holds = await conditions.hold(versioned)
        except ConditionsFailed as failed:
            for _ in range(failed.count):
                self._metrics.condition_error(*about)
            if not webhook.fails_open:
                logger.warning("match conditions failed: the request is rejected", extra={"webhook": webhook.name, "error": str(failed)})
                raise forbidden(versioned.attributes, str(failed)) from failed
            holds = False
        finally:
            self._metrics.conditions(*about, time.perf_counter() - began)
        if not holds:
            self._metrics.excluded(*about)
        return holds
