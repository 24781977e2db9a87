"""Live migrations: the loop that gives each its target pod and its end, and what it is decided by.

``migration_plan`` decides about one, and is to be read first; ``reconciler`` is the loop around it. Which of all begins is decided about
all of them together: ``migration_queue`` (pure), as ``migration_turns`` keeps it. Parts of these decisions: what is in the way
(``migratable``, ``unschedulable``), how long each phase may take (``migration_bounds``), another attempt (``migration_retries``), and what
is kept of those that are over (``migration_history``). ``made_migrations`` are those that an eviction or an upgrade asks for;
``ended_drains`` are drains that an uncordon ended.

Bytes and domains are the business of the two virt-handlers and launchers: :mod:`handler.reconcilers`.
"""
