"""One module a decision: what pods, phases, migrations and certificates should be.

``virtual_machines`` is to be read first: its ``reconciler`` gathers what is observed, has ``virtual_machine_plan`` decide, and gives the
``actions`` that come of it to ``applying``; other loops are made alike. Rooms that only decide: ``launcher_pods`` (the pod of a
machine), ``pods`` and ``nodes`` (what is found of those), and beside them ``disk_claims`` and ``precedence``. ``migrations``, ``upgrades``
and ``certificates`` are the other loops. ``copies`` has the objects that all loops read, ``trimming`` what is kept of each, ``settings``
what the operator decided.

A room knows those below it alone (contract "Every part of the reconcilers has a place"). A module that says ``Pure`` does no I/O, asks no
clock and keeps nothing: what it needs is given to it.
"""
