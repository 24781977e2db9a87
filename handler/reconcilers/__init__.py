"""Decisions of virt-handler: the guests of its node, and its side of their migrations.

``guest_plan`` and ``migration_plan`` decide (pure), ``guest_status`` says in the API's words what a launcher reported (pure),
``run_guest``, ``migrate_source`` and ``migrate_target`` gather and apply, the last two on ``migration_side``; ``wiring`` keeps the
networks of the pods, and ``migration_ports`` names what the two use of the world.
"""
