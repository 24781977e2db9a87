"""The storage port over etcd (3.5.13 or later; earlier ones answer progress requests incorrectly)."""
