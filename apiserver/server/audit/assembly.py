"""Build the audit log: the filter, the policy and the backends."""

from __future__ import annotations

from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from apiserver.client.config import Config
from apiserver.client.rest import Client
from apiserver.endpoints.audit import policy
from apiserver.endpoints.filters.auditing import AuditMetrics, Auditor
from apiserver.server.audit.buffering import STRICT, Buffer, BufferOptions
from apiserver.server.audit.logfile import STDOUT, LogFile
from apiserver.server.audit.options import AuditOptions
from apiserver.server.audit.webhook import Webhook


@dataclass(slots=True)
class Auditing:
    """The filter and its backends."""

    auditor: Auditor
    buffers: list[Buffer] = field(default_factory=list)

    def close(self) -> None:
        """End the backends' ``run`` once everything is stored."""
        for each in self.buffers:
            each.close()


async def build(options: AuditOptions, metrics: AuditMetrics, stack: AsyncExitStack) -> Auditing | None:
    """Return the audit log, closed by ``stack``; None without policy or backend.

    Raises:
        OSError, ValueError: policy or file are unusable.
        ConfigError: the webhook's kubeconfig is unusable.
    """
    if options.audit_policy_file is None or not (options.audit_log_path or options.audit_webhook_config_file):
        return None
    policy = read_policy(options.audit_policy_file)
    buffers = []
    if options.audit_log_path:
        file = LogFile(
            options.audit_log_path,
            megabytes=options.audit_log_maxsize,
            backups=options.audit_log_maxbackup,
            days=options.audit_log_maxage,
            compress=options.audit_log_compress,
        )
        stack.callback(file.close)
        buffering = BufferOptions(options.audit_log_mode, options.audit_log_batch_buffer_size)
        # If every request waits, write without a thread: the page cache takes microseconds.
        at_once = options.audit_log_mode == STRICT and options.audit_log_path != STDOUT and not options.audit_log_compress
        buffers.append(Buffer("log", file.write if at_once else file.store, buffering, metrics.errors.cell("log")))
    if options.audit_webhook_config_file:
        buffers.append(await _webhook(options, options.audit_webhook_config_file, metrics, stack))
    truncates = options.audit_log_truncate_enabled or options.audit_webhook_truncate_enabled
    limit = options.audit_log_truncate_max_event_size if truncates else 0
    return Auditing(Auditor(policy, buffers, metrics, limit=limit), buffers)


async def _webhook(options: AuditOptions, file: Path, metrics: AuditMetrics, stack: AsyncExitStack) -> Buffer:
    client = await stack.enter_async_context(Client(Config.from_kubeconfig(file), user_agent="virt-api"))
    webhook = Webhook(client, backoff_seconds=options.audit_webhook_initial_backoff)
    buffering = BufferOptions(
        options.audit_webhook_mode,
        options.audit_webhook_batch_buffer_size,
        options.audit_webhook_batch_max_size,
        options.audit_webhook_batch_max_wait,
    )
    return Buffer("webhook", webhook.store, buffering, metrics.errors.cell("webhook"))


def read_policy(file: Path) -> policy.Policy:
    """Read the policy from a file.

    Raises:
        OSError: it is unreadable.
        ValueError: it is invalid.
    """
    try:
        return policy.parse(yaml.safe_load(file.read_text()))
    except (yaml.YAMLError, ValueError) as error:
        raise ValueError(f"--audit-policy-file={file}: {error}") from None
