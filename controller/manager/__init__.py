"""virt-controller's process: flags in, loops that run until a signal or the loss of the lease out.

``__main__`` is to be read first: it reads the flags (``options``), logs, makes the client, and ends with the exit code. ``wiring`` has all
parts in one picture: health, metrics and the webhook of evictions on every replica, and behind the leader election the certificates, the
informers and the loops of :mod:`controller.reconcilers`, which start when the informers are in sync. ``metrics`` is what is counted,
``namespace_labels`` one small loop of the leader.

``uninstall`` is another program (``python -m controller.manager.uninstall``): the chart's pre-delete hook, which shuts guests down.

Nothing is decided here, and nobody imports this package.
"""
