"""What is special about virtual machines and migrations: strategies, tables, subresources."""
