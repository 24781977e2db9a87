"""The audit log of a process: flags, backends and buffering."""
