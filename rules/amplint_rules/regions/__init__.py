"""Rules about autocast regions: what runs inside them and should not, and what they do not reach."""
