"""Webhooks' annotations in the log, with the keys of ``k8s.io/apiserver``."""

from __future__ import annotations

import logging
from typing import Final

from apiserver.admission.webhook.registrations import Webhook
from apiserver.apis.meta import names
from apiserver.registry.generic.admission import Attributes

logger = logging.getLogger(__name__)

MUTATION: Final = "mutation.webhook.admission.k8s.io/"
VALIDATING: Final = "validating.webhook.admission.k8s.io/"
FAILED_OPEN: Final = "failed-open."


def given(attributes: Attributes, webhook: Webhook, key: str, value: str) -> None:
    """Add a webhook's audit annotation to the request; with an invalid key only log it."""
    full = f"{webhook.name}/{key}"
    if full.count("/") != 1 or names.qualified_name_errors(full):
        logger.warning("an audit annotation of a webhook has an invalid name", extra={"webhook": webhook.name, "annotation": full[:128]})
        return
    attributes.annotate(full, value)


def failed_open(attributes: Attributes, webhook: Webhook, prefix: str, place: str) -> None:
    """Annotate the request: this webhook's call failed, and is ignored. ``prefix`` and ``place`` end the annotation's key."""
    attributes.annotate(FAILED_OPEN + prefix + place, webhook.name)
