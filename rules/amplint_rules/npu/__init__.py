"""Rules about what an Ascend NPU computes otherwise than CUDA."""
