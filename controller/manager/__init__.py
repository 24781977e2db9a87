"""The virt-controller process. Start with ``__main__``; ``wiring`` starts the tasks, and ``loops`` lists the loops.

No decisions are made here, and no other package imports this one.
"""
