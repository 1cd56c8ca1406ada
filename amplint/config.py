"""Settings: what is in force for a run, and where each value came from."""
