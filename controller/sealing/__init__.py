"""Seals the Leases of guardians that no longer renew them. Each replica of virt-controller does this, so a new leader need not wait."""
