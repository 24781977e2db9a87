"""virt-controller: the control loops that work for the whole cluster.

- ``reconcilers`` decides about machines, migrations, upgrades and certificates. Start there.
- ``evictions`` answers kube-apiserver's eviction reviews.
- ``runtime`` calls a loop when an object changes.
- ``serving`` has the HTTP servers.
- ``manager`` is the process: flags, metrics, and in ``wiring`` its tasks.

Every replica runs evictions, health and metrics; the leader runs the rest. Information for virt-handlers is written into objects, which are
plain JSON. virt-handler imports only ``runtime`` and ``serving``.
"""
