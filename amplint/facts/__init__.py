"""Facts about torch, torch_npu and their neighbours: tables with a source for every row.

Code reads them and never repeats them. A table is UTF-8 TSV with a header row.
"""

from __future__ import annotations

from functools import cache
from importlib import resources


@cache
def table(name: str) -> tuple[dict[str, str], ...]:
    """Rows of `amplint/facts/<name>.tsv` as dictionaries from column to text."""
    text = resources.files(__name__).joinpath(f"{name}.tsv").read_text(encoding="utf-8")
    lines = text.splitlines()
    header = lines[0].split("\t")
    return tuple(dict(zip(header, line.split("\t"), strict=True)) for line in lines[1:] if line)


@cache
def aliases() -> dict[str, str]:
    """Qualified name -> the one under which rules know it (modules that moved, re-exports)."""
    return {row["name"]: row["canonical"] for row in table("aliases")}


@cache
def library(name: str) -> str:
    """What a library's classes do to a scaler, as a module of Python in our own words: `libraries/<name>.txt`."""
    return resources.files(__name__).joinpath("libraries").joinpath(f"{name}.txt").read_text(encoding="utf-8")


@cache
def shim_names() -> tuple[str, ...]:
    """Names that the runtime shim offers in place of `torch.cuda.amp`'s."""
    return tuple(row["shim"] for row in table("cuda_amp_api") if row["shim"])


def version(text: str) -> tuple[int, int]:
    """`"2.10"` -> (2, 10)."""
    major, _, minor = text.partition(".")
    return int(major), int(minor or 0)


@cache
def known_names() -> frozenset[str]:
    """Every qualified name that the tables or the rules name, and the modules that these are in."""
    cells = {
        cell
        for name in ("aliases", "autocast_state", "cuda_amp_api", "grad_scalers", "libraries", "names")
        for row in (*table(name), *table("tensor_results"))
        for key, cell in row.items()
        if key != "source"
    }
    cells.update(row["class"] for row in table("scaler_owners"))
    cells.update(f"torch.nn.{row['module']}" for row in table("nn_modules"))
    for row in table("autocast_ops"):
        op = row["op"].removeprefix("aten::").partition(".")[0]
        cells.update((f"torch.{op}", f"torch.nn.functional.{op}", f"torch.Tensor.{op}"))
    names = {cell for cell in cells if "." in cell and all(part.isidentifier() for part in cell.split("."))}
    for name in tuple(names):
        while name := name.rpartition(".")[0]:
            names.add(name)
    return frozenset(names)
