"""Write permissions of a node's virt-handler: tables of fields by phase and role, and checks of one write. Pure.

All virt-handlers have the same account; the token contains the node. An attacker with a node's token can change only what runs on that
node: not the status of other nodes' machines, nor a user's spec, nor the node of an attempt.
"""
