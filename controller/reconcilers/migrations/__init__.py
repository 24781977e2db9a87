"""Live migrations: the loop that creates target pods and ends migrations, and its decisions.

- ``migration_plan`` decides about one migration (start there); ``reconciler`` is its loop.
- ``migration_queue`` decides which migrations begin; ``migration_turns`` keeps that order.
- ``migratable``, ``unschedulable``: what prevents a migration.
- ``migration_bounds``: time limits; ``migration_retries``: further attempts; ``ended_drains``: drains that ended by uncordoning.
- ``migration_history``: which finished migrations are kept.
- ``made_migrations``: the Migrations for evictions and upgrades.

virt-handlers and launchers move data and domains: :mod:`handler.reconcilers`.
"""
