"""The configuration: its options (options.py) and how a file of it is read (reading.py)."""
