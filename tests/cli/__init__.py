"""The command line: what is asked, what is answered, by which exit code. Nothing here needs root."""
