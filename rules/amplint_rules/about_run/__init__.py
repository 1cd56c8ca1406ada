"""AMP9: about the run itself."""
