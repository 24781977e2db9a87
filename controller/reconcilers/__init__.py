"""One module a decision: what pods, phases, migrations and certificates should be."""
