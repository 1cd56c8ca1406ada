"""Many modules: which file an import means, and what modules take from one another."""
