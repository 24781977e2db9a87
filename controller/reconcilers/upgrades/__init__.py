"""Upgrades: the loop that takes guests into pods of the release, and what it is decided by.

``workload_update_plan`` decides whose guest goes next (pure), ``workload_updates`` is the loop, and ``workload_update_memory`` remembers
the migrations that it made. Which pods are of another release is :mod:`controller.reconcilers.virtual_machines.outdated`.
"""
