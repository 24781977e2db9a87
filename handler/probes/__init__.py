"""Probes of guests: ``spec.readinessProbe`` and ``spec.livenessProbe``.

``asking`` sends one question, ``node_sockets`` makes the sockets for it, ``prober`` repeats it, and ``tally`` counts the answers against
the thresholds.
"""
