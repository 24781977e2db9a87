"""Errors of plugin calls. The message is for the machine's owner and names the plugin."""

from __future__ import annotations

from typing import ClassVar

from apiserver.apis.virt.lifecycle import conditions


class Fault(Exception):
    """A plugin call failed; it is retried unless it is ``PluginRefused``."""

    reason: ClassVar[str] = conditions.PLUGIN_FAILED
    """Of the condition that reports it."""


class Failed(Fault):
    """The plugin reported an error, or its answer was invalid."""


class TimedOut(Fault):
    """The plugin took too long and was killed, or its call waited too long for a turn."""

    reason: ClassVar[str] = conditions.PLUGIN_TIMED_OUT


class NotFound(Fault):
    """The plugin is not on this node, or is not enabled there."""

    reason: ClassVar[str] = conditions.PLUGIN_NOT_FOUND


class PluginRefused(Fault):
    """The plugin reported that the machine's request is impossible."""
