"""``make bench-attacks``: the memory and time of virt-api that peers can take before they have shown who they are.

- ``wire``: a client's TLS in memory, which can stop anywhere
- ``attackers``: the attacks, a process of their own
- ``target``: virt-api as a process over memory, the cluster that it asks, its memory, and the client that must be served meanwhile
- ``__main__``: one attack after the other, each on a new server; a table, and ``build/bench/attacks.json``

Nothing here depends on how the server defends itself: ``--source`` runs the server of another revision, to compare.
"""
