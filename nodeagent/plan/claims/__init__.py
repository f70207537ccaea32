"""Who asks for which names: every kind of object that can ask, made into one neutral value."""
