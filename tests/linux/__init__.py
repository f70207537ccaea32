"""Files replaced whole."""
