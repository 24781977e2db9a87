"""Decisions of virt-handler: the guests of its node, and its side of their migrations.

``guest_plan`` and ``migration_plan`` decide (pure), ``guest_status`` says in the API's words what a launcher reported (pure),
``run_guest`` and ``migrate_guest`` gather and apply; ``wiring`` keeps the networks of the pods, and ``migration_ports`` names what
``migrate_guest`` uses of the world.
"""
