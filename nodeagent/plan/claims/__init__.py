"""Which objects claim which hostnames: every kind that can claim one becomes one neutral value."""
