"""Parsing with LibCST, the one walk over a tree, and positions computed only when asked for."""
