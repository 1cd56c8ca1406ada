"""What precision every value of a file can have: an abstract interpretation of its code.

`lattice` has the dtypes and how they promote, `values` what expressions stand for, `operators` what PyTorch's operators
make of them inside and outside autocast regions, `machine` runs statements and calls, `library` knows PyTorch's
functions and modules, and `analysis` runs a file from its entry points and keeps what was seen.
"""
