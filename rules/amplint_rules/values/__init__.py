"""AMP3: precision of values, and the contexts that decide it."""
