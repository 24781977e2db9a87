"""The cluster-wide loops: virt-controller.

To be read from the decisions outwards: ``reconcilers`` decides about machines, migrations, upgrades and certificates, and ``evictions``
about the evictions that kube-apiserver asks about; ``runtime`` calls a loop for what changed, ``serving`` listens, and ``manager`` is the
process: flags, metrics, and in ``wiring`` what runs side by side. All but evictions, health and metrics is done by one replica, the leader.

Nothing here talks to a node or a launcher, nor knows pydantic or storage: objects are plain JSON, and what virt-handlers have to know is
written into them. virt-handler imports ``runtime`` and ``serving``, and nothing else of this package.
"""
