"""Flags of the audit log, with Go's names."""

from __future__ import annotations

import argparse
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from apiserver.apis.meta import flags
from apiserver.endpoints.audit import policy
from apiserver.server.audit.buffering import MODES, Mode


@dataclass(frozen=True, slots=True)
class AuditOptions:
    """The flags ``--audit-*``."""

    audit_policy_file: Path | None = None
    audit_log_path: str = ""
    audit_log_maxage: int = 366
    audit_log_maxbackup: int = 100
    audit_log_maxsize: int = 100
    audit_log_compress: bool = False
    audit_log_format: str = "json"
    audit_log_version: str = policy.API_VERSION
    audit_log_mode: Mode = "blocking"
    audit_log_batch_buffer_size: int = 10_000
    audit_log_truncate_enabled: bool = False
    audit_log_truncate_max_event_size: int = 100 << 10
    audit_webhook_config_file: Path | None = None
    audit_webhook_initial_backoff: float = 10.0
    audit_webhook_mode: Mode = "batch"
    audit_webhook_batch_buffer_size: int = 10_000
    audit_webhook_batch_max_size: int = 400
    audit_webhook_batch_max_wait: float = 30.0
    audit_webhook_version: str = policy.API_VERSION
    audit_webhook_truncate_enabled: bool = False

    @classmethod
    def of(cls, given: argparse.Namespace) -> AuditOptions:
        """Extract the flags from the parsed command line."""
        return cls(**{each.name: getattr(given, each.name) for each in fields(cls)})


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags, with Go's names and defaults."""
    group = parser.add_argument_group("audit", "Nothing is recorded without a policy.")
    defaults = AuditOptions()

    def add(name: str, about: str, **more: Any) -> None:  # noqa: ANN401 - argparse's own
        group.add_argument(f"--audit-{name}", default=getattr(defaults, f"audit_{name.replace('-', '_')}"), help=about, **more)

    add("policy-file", "audit.k8s.io/v1 Policy: how much of which request is recorded", metavar="FILE", type=Path)
    add("log-path", "file for events, one JSON object a line; - is standard output", metavar="FILE")
    add("log-maxage", "days that rotated files stay; 0: for ever", metavar="DAYS", type=flags.natural)
    add("log-maxbackup", "how many rotated files stay; 0: all", metavar="N", type=flags.natural)
    add("log-maxsize", "megabytes at which the file is rotated; 0: never", metavar="MB", type=flags.natural)
    add("log-compress", "gzip rotated files", type=_truth, nargs="?", const=True)
    add("log-format", "json", choices=["json"])
    add("log-version", "version of the events", choices=[policy.API_VERSION])
    add("log-mode", "what happens when the file is slow: events are lost, or requests wait", choices=MODES)
    add("log-batch-buffer-size", "events that may wait to be written", metavar="N", type=flags.positive)
    add("log-truncate-enabled", "leave the objects out of events that are too large", type=_truth, nargs="?", const=True)
    add("log-truncate-max-event-size", "bytes of both objects of an event", metavar="BYTES", type=flags.positive)
    add("webhook-config-file", "kubeconfig of the webhook that gets the events", metavar="FILE", type=Path)
    add("webhook-initial-backoff", "pause before a batch is sent again", metavar="DURATION", type=flags.seconds)
    add("webhook-mode", "what happens when the webhook is slow: events are lost, or requests wait", choices=MODES)
    add("webhook-batch-buffer-size", "events that may wait to be sent", metavar="N", type=flags.positive)
    add("webhook-batch-max-size", "the most events in one batch", metavar="N", type=flags.positive)
    add("webhook-batch-max-wait", "the longest that an event waits for its batch", metavar="DURATION", type=flags.seconds)
    add("webhook-version", "version of the events", choices=[policy.API_VERSION])
    add("webhook-truncate-enabled", "leave the objects out of events that are too large", type=_truth, nargs="?", const=True)


def _truth(text: str) -> bool:
    if text.lower() not in {"true", "false", "1", "0", "t", "f"}:
        raise argparse.ArgumentTypeError(f"{text} is neither true nor false")
    return text.lower() in {"true", "1", "t"}
