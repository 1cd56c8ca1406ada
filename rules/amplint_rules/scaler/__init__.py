"""AMP2: the GradScaler protocol."""
