"""The virt-controller process.

- ``__main__`` reads the flags (``options``), sets up logging and the client, and returns the exit code. Start there.
- ``wiring`` starts health, metrics and the eviction webhook on every replica. After leader election it starts the certificates, the
  informers, and once those are in sync the loops of :mod:`controller.reconcilers`.
- ``metrics`` has the counters, ``namespace_labels`` a small loop of the leader.
- ``uninstall`` is a separate program (``python -m controller.manager.uninstall``), the chart's pre-delete hook.

No decisions are made here, and no other package imports this one.
"""
