"""What nodes and pods may write about a machine, and whom the processes trust. Pure."""
