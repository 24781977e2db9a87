"""Write permissions of a node's virt-handler: tables of fields by phase and role, and checks of one write. Pure.

An attacker with a node's token can change only what runs on that node: not other nodes' machines, nor a spec, nor the node of an attempt.
"""
