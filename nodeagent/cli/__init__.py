"""The commands. report.py has their answers, as JSON and as text; terminal.py prints them."""
