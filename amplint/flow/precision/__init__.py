"""What precision every value of a file can have: an abstract interpretation of its code.

`lattice` has the dtypes and how they promote, `values` what expressions stand for, `state` what is known at one point,
`operators` what PyTorch's operators make of their operands inside and outside autocast regions. `machine` runs
statements and calls; `library`, `functions`, `modules`, `methods` and `names` know what is not written in the file.
`relevance` tells beforehand which functions can matter, `analysis` runs a file from its entry points, and `notes` keeps
what was seen, which `explain` and `listing` put in words.
"""
