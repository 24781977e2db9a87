"""``make bench-api``: what an operation costs our server and the reference twin, side by side.

- ``loadgen``: the load generator, Go with nothing but its standard library
- ``payloads``: the objects, of the same size on both sides
- ``operations``: what is asked, how, and which ratio is wanted
- ``varied``: requests of many users for many objects
- ``bench``: the servers, the rounds, memory
- ``report``: the table and ``build/bench/api.json``
- ``profile``: where the time goes in ours
- ``scale``, ``aggregated``: many objects, many watchers, growth; and both behind kube-apiserver
"""
