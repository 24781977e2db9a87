"""Fuzzing of virt-api: no 500, no hang, no traceback."""
