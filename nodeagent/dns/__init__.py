"""Which hostnames are asked for, and what DNS answers: one lookup, when each is due, the answers."""
