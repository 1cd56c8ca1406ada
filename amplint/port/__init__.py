"""Porting CUDA-only AMP names: who uses them, how each use is spelled, one fix per symbol and module."""
