"""``make bench-attacks``: memory and time of virt-api that unauthenticated peers can use.

- ``wire``: a client's TLS in memory, which can stop at any byte
- ``attackers``: the attacks, as a separate process
- ``target``: virt-api as a process over memory, its cluster, its memory figures, and the legitimate client
- ``__main__``: runs each attack on a new server; prints a table and writes ``build/bench/attacks.json``

Nothing here depends on the server's defenses: ``--source`` runs the server of another revision, for comparison.
"""
