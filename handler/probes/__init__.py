"""Probes of guests: ``spec.readinessProbe`` and ``spec.livenessProbe``.

``asking`` runs one probe, ``node_sockets`` makes its sockets, ``prober`` repeats it, and ``tally`` compares the results with the
thresholds.
"""
