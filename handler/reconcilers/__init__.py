"""Decisions of virt-handler: the guests of its node, and its side of their migrations.

``guest_plan`` and ``migration_plan`` decide (pure), ``guest_status`` and ``guest_report`` say in the API's words what a launcher reported
(pure). ``run_guest``, ``migrate_source`` and ``migrate_target`` are the loops: gather what is observed, plan, apply. What is planned for a
guest is applied by ``guest_applying`` with ``guest_start`` and ``guest_writes``, what is planned for a migration by its two loops, on
``migration_side``. ``pod_networks`` keeps the networks of the pods; ``guest_ports`` and ``migration_ports`` name what is used of the world.
"""
