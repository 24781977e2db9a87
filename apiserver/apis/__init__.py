"""The API as data: shared by every process; imports nothing of ours and does no I/O."""
