"""Holds `transfer_to_npu`, as in the real package."""
