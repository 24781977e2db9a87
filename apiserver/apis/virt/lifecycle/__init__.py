"""The lifecycle of machines and migrations: phases, power, conditions."""
