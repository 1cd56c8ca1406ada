"""AMP3: the precision of values."""
