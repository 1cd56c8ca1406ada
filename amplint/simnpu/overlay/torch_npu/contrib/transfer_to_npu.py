"""Importing this makes CUDA code run on the NPU, as far as `amplint.simnpu.transfer` says."""

from amplint.simnpu import transfer

transfer.install()
