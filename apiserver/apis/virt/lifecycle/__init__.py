"""The life of machines and migrations: phases, power, conditions, and what each may become. Pure."""
