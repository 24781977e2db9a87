"""What pods, phases, migrations and certificates should be, one module per decision.

Start with ``virtual_machines``: its ``reconciler`` gathers the observed state, ``virtual_machine_plan`` decides, and ``applying`` applies
the resulting ``actions``. ``migrations``, ``upgrades`` and ``certificates`` are structured alike. Shared modules:

- ``launcher_pods``: the pod of a machine.
- ``pods``, ``nodes``: the observed state of pods and nodes.
- ``disk_claims``, ``precedence``; ``settings`` has the operator's choices.
- ``indexes``: the objects that the loops of machines, migrations and upgrades read; ``trimming``: the fields kept of each.

A package may import only those below it (contract "Every part of the reconcilers has a place"). A module marked ``Pure`` does no I/O, reads
no clock and keeps no state.
"""
