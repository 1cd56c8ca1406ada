"""Notebooks: the cells of one make one module, and what is edited there goes back into its cells."""
