"""``make bench-api``: the cost of an operation on our server and on the reference server, side by side.

- ``loadgen``: the load generator, in Go with only the standard library
- ``payloads``: the objects, of equal size on both sides
- ``operations``: the operations, their requests and their wanted ratios
- ``varied``: requests of many users for many objects
- ``bench``: the servers, the rounds, memory
- ``report``: the table and ``build/bench/api.json``
- ``profile``: where our server spends its time
- ``scale``, ``aggregated``: many objects, many watchers, growth; and both behind kube-apiserver
"""
