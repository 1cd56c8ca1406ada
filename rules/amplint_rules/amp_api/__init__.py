"""AMP1: the CUDA-only AMP API."""
