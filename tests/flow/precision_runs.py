"""Compares amplint with torch on one device, in a process of its own, and prints what was found as JSON.

    python precision_runs.py cpu|npu|cuda programs NUMBER
    python precision_runs.py cpu|npu|cuda rows few|all

"npu" is the simulated one, and needs `python -m amplint.simnpu`; "cuda" has tensors without values.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from random import Random

from hypothesis import HealthCheck, Phase, given, note, settings
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parents[1]))

from flow.precision_programs import Report, all_forms, check, table_programs, write

#: The dtype of the first operand, and of the others.
PAIRS = (
    ("float32", "float16"),
    ("bfloat16", "float32"),
    ("float16", "bfloat16"),
    ("float64", "float32"),
    ("float16", "float64"),
    ("int64", "float16"),
    ("float32", "int64"),
    ("bool", "int32"),
    ("int32", "bool"),
)
#: Where there are no values, torch runs other code for these, which promotes where kernels do not.
_DECOMPOSED = ("block_diag", "cdist", "cross_entropy", "huber_loss", "nll_loss", "normal", "soft_margin_loss")
DTYPES = ("float16", "bfloat16", "float32", "float64", "int64", "bool")
FEW = (("float16", "float16"), ("float32", "float32"), ("int64", "int64"))
#: Statements of the largest program.
LONGEST = 24


def programs(device: str, examples: int) -> Report:
    """Random programs. The first statements of a program do not depend on how many follow: that is what shrinks."""
    total = Report()

    @settings(
        max_examples=examples,
        deadline=None,
        derandomize=True,
        database=None,
        report_multiple_bugs=False,
        phases=(Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck),
    )
    @given(st.integers(0, 2**40), st.sampled_from((LONGEST, LONGEST - 1, *range(1, LONGEST - 1))))
    def compare(seed: int, statements: int) -> None:
        program = write(Random(seed), device, statements)
        report = check(program, device)
        note(program.text)
        assert not report.mistakes, "\n".join(report.mistakes)
        total.add(report)

    compare()
    return total


def rows(device: str, every: bool) -> Report:
    """Every row of the table of operators, with operands of every dtype, in regions and outside."""
    total = Report()
    pairs = [(dtype, dtype) for dtype in DTYPES] + list(PAIRS) if every else list(FEW)
    regions = ["", f"torch.autocast('{device}', dtype=torch.float16)"]
    if every:
        regions.append(f"torch.autocast('{device}', dtype=torch.bfloat16)")
    forms = all_forms(every)
    for name in _DECOMPOSED if device == "cuda" else ():
        forms.pop(name)
    for first, others in pairs:
        if device == "npu" and "float64" in (first, others):
            continue  # torch_npu gives float32 in its place
        if device == "cuda" and not {"int64", "int32", "bool"}.isdisjoint((first, others)):
            continue  # operators without values take integers that they do not take with them
        for region in regions:
            for program in table_programs(device, f"torch.{first}", f"torch.{others}", region, forms):
                found = check(program, device)
                found.mistakes = [f"({first}, {others}, {region}) {each}" for each in found.mistakes]
                total.add(found)
    return total


def main(device: str, what: str, number: str) -> None:
    """Compare, and print."""
    error = ""
    report = Report()
    try:
        report = programs(device, int(number)) if what == "programs" else rows(device, number == "all")
    except AssertionError as failure:
        error = "\n".join([str(failure), *getattr(failure, "__notes__", ())])
    print(json.dumps({**vars(report), "error": error}))


if __name__ == "__main__":
    main(*sys.argv[1:])
