"""Upgrades: moves guests into pods of the current version.

``workload_update_plan`` decides which guests go next, ``workload_updates`` is the loop, and ``workload_update_memory`` stores the
migrations that it created. :mod:`controller.reconcilers.virtual_machines.outdated` determines which pods are of another version.
"""
