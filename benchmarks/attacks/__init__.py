"""``make bench-attacks``: memory and time of virt-api that unauthenticated peers can use.

``--source`` runs another revision's server, for comparison.
"""
