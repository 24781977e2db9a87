"""Live migrations: the loop that creates target pods and ends migrations, and its decisions.

- ``migration_plan`` decides about one migration (start there); ``reconciler`` is its loop.
- ``migration_queue`` (pure) decides which migrations begin; ``migration_turns`` keeps that order.
- ``migratable``, ``unschedulable``: what prevents a migration.
- ``migration_bounds``: the time limits of each phase; ``migration_retries``: further attempts.
- ``migration_history``: which finished migrations are kept.
- ``made_migrations``: the Migrations for evictions and upgrades.
- ``ended_drains``: drains that ended by uncordoning.

Data and domains are handled by the two virt-handlers and launchers: :mod:`handler.reconcilers`.
"""
