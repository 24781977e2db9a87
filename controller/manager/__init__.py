"""The virt-controller process.

- ``__main__`` reads the flags (``options``), sets up logging and the client, and returns the exit code. Start there.
- ``wiring`` starts the tasks, ``loops`` lists the loops.
- ``metrics`` has the counters, ``namespace_labels`` a small loop of the leader.
- ``uninstall`` is a separate program, the chart's pre-delete hook.

No decisions are made here, and no other package imports this one.
"""
