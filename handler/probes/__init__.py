"""Probes of guests: ``spec.readinessProbe`` and ``spec.livenessProbe``."""
