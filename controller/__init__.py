"""virt-controller: the control loops that work for the whole cluster.

- ``reconcilers`` makes the decisions about machines, migrations, upgrades and certificates. Start there.
- ``evictions`` answers kube-apiserver's eviction reviews.
- ``runtime`` calls a loop when an object changes.
- ``serving`` has the HTTP servers.
- ``manager`` is the process: flags, metrics, and in ``wiring`` the tasks it runs.

The leader runs everything except evictions, health and metrics, which run on every replica.

Nothing here talks to a node or a launcher, or uses pydantic or storage. Objects are plain JSON, and information for virt-handlers is
written into them. virt-handler imports only ``runtime`` and ``serving`` from this package.
"""
