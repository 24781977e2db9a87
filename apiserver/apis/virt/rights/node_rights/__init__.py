"""Rights of one node's virt-handler to write: tables of fields by phase and role, and functions that hold one write against them. Pure.

Each virt-handler has the same account; which node it serves is in its token. Whoever took over a node writes with that node's token, and
gains nothing beyond what runs there: not the status of other nodes' machines, not what a user asked for, not which attempt runs where.
"""
