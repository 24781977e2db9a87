"""Reconcilers: what pods, phases, migrations and certificates should be, one module per decision.

Start with ``virtual_machines``: its ``reconciler`` gathers the observed state, ``virtual_machine_plan`` decides, and ``applying`` applies
the resulting ``actions``.

A package may import only those below it (contract "virt-controller's reconcilers"). A module marked ``Pure`` does no I/O, reads
no clock and keeps no state.
"""
