"""One status, and its renderings: pages, log, metrics, Events."""
