"""The commands, one file each, and how their answers are shown: text.py for people, document.py as JSON."""
