"""The status and what is made of it: the pages, metrics and Events."""
