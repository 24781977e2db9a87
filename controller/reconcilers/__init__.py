"""One module a decision: what pods, phases, migrations and certificates should be.

``virtual_machines`` is to be read first: its ``reconciler`` gathers what is observed, has ``virtual_machine_plan`` decide, and gives the
``actions`` that come of it to ``applying``. ``migrations``, ``upgrades`` and ``certificates`` have the other loops, made alike. What they
decide by: ``launcher_pods`` (the pod of a machine), ``pods`` and ``nodes`` (what is found of those), ``disk_claims``, ``precedence`` and
``settings`` (what the operator decided). ``indexes`` has the objects that the loops of machines, migrations and upgrades read,
``trimming`` what is kept of each.

A room knows those below it alone (contract "Every part of the reconcilers has a place"). A module that says ``Pure`` does no I/O, asks no
clock and keeps nothing: what it needs is given to it.
"""
