"""Faults of plugins that did not do what they were asked to. The message is for the machine's owner: it names the plugin."""

from __future__ import annotations

from typing import ClassVar

from apiserver.apis.virt.lifecycle import conditions


class Fault(Exception):
    """A plugin did not do what it was asked to; unless it is ``PluginRefused``, it is asked again."""

    reason: ClassVar[str] = conditions.PLUGIN_FAILED
    """Of the condition that tells it."""


class Failed(Fault):
    """It said an error, or something that no plugin may say."""


class TimedOut(Fault):
    """It took too long, and was ended."""

    reason: ClassVar[str] = conditions.PLUGIN_TIMED_OUT


class NotFound(Fault):
    """This node does not have it."""

    reason: ClassVar[str] = conditions.PLUGIN_NOT_FOUND


class PluginRefused(Fault):
    """It said that what the machine asks for cannot be."""
