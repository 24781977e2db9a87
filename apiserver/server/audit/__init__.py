"""The audit log of a process: its flags, where events go, and what waits when that is slow."""
