"""Live migrations: the loop that creates target pods and ends migrations, and its decisions.

Start with ``migration_plan``, which decides about one migration; ``reconciler`` is its loop. ``migration_queue`` decides which migrations
begin, and ``migration_turns`` keeps that order.

virt-handlers and launchers move data and domains: :mod:`handler.reconcilers`.
"""
