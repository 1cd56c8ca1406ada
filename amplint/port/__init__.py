"""Porting CUDA-only AMP names to device-agnostic ones: who uses them, how each use is spelled, one fix per symbol."""
