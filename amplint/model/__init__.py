"""What one module means: names, objects, regions, and functions lowered to a small IR."""
