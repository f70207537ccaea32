"""How a configuration file is read, and what is said of a bad one."""
