"""virt-handler's decisions about its node's guests, and its side of their migrations.

``guest_plan`` and ``side_plan`` decide (pure); ``guest_status`` and ``guest_report`` convert a launcher's reports to the API's fields
(pure). ``run_guest``, ``migrate_source`` and ``migrate_target`` are the loops: observe, plan, apply. ``guest_applying`` with
``guest_start`` and ``guest_writes`` applies a guest's plan, and the two migration loops apply theirs with ``migration_side``.
``pod_networks`` sets up the pods' networks; ``guest_ports`` and ``migration_ports`` define the interfaces to the environment.
"""
