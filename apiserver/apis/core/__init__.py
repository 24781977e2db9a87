"""The built-in kinds that our processes read or write, as plain JSON."""
