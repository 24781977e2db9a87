"""``make bench-attacks``: memory and time of virt-api that unauthenticated peers can use.

``--source`` runs the server of another revision, for comparison.
"""
