"""``make bench-attacks``: memory and time of virt-api that unauthenticated peers can use.

``attackers`` has the attacks, ``target`` virt-api and the legitimate client.

``--source`` runs the server of another revision, for comparison.
"""
