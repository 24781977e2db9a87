"""``make bench-api``: the cost of an operation on our server and on the reference server, side by side.

- ``loadgen``: the load generator, in Go
- ``operations``: the operations and their wanted ratios
- ``varied``: requests of many users for many objects
- ``profile``: where our server spends its time
- ``scale``: many objects and watchers
"""
