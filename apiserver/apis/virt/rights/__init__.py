"""What nodes and pods may write about a machine, and which certificates the processes trust."""
