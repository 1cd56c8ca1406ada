"""`amplint ops FILE`: what runs in the autocast regions of a file, and in which dtype on CUDA and on NPU."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from amplint.cli import UserError, emit, wants_color
from amplint.config import DEFAULT_SOURCE, ConfigError, Settings, load_settings

if TYPE_CHECKING:
    from amplint.flow.precision.listing import Operation, Place, RegionListing

#: The release of torch whose lists are used where the project names none.
_NEWEST = "2.13"
_COLUMNS = ("line", "operator", "operands (on NPU)", "on CUDA", "on NPU", "")


@click.command(short_help="Print what runs in each autocast region of a file, and in which dtype.")
@click.argument("file", metavar="FILE", type=click.Path(exists=True, dir_okay=False))
@click.option("--differences", is_flag=True, help="Only what CUDA and NPU compute in different dtypes.")
@click.option("--isolated", is_flag=True, help="Read no configuration and no dependencies.")
@click.option(
    "--config", "config_file", metavar="FILE", help="Configuration to use instead of the nearest one."
)
@click.option(
    "--torch", metavar="VERSION", help=f"Lists of this release; else the project's `torch`, or {_NEWEST}."
)
@click.option(
    "--output-format",
    type=click.Choice(("text", "json")),
    default="text",
    show_default=True,
    help="A table for each region, or an object.",
)
def ops(
    file: str,
    differences: bool,
    isolated: bool,
    config_file: str | None,
    torch: str | None,
    output_format: str,
) -> None:
    """Print what runs in each autocast region of FILE, and in which dtype on CUDA and on NPU.

    What differs comes first. Nothing is run: the dtypes are what amplint derives from the code of FILE and of the
    files beside it that it imports; "?" is one that it does not know.
    """
    from amplint.runner import operators_in_regions
    from amplint.source import SourceError

    settings = _settings(file, isolated, config_file, torch)
    try:
        regions = operators_in_regions(Path(file), settings, cwd=Path.cwd())
    except SourceError as error:
        raise UserError(f"{error.filename}: {error.message}") from error
    if output_format == "json":
        import json

        described = {"file": file, "regions": [_described(region, differences) for region in regions]}
        emit(json.dumps(described, indent=2) + "\n")
    else:
        emit(_text(file, regions, differences))


def _settings(file: str, isolated: bool, config_file: str | None, torch: str | None) -> Settings:
    chosen = None if config_file is None else Path(config_file)
    given = {"torch": torch}
    try:
        settings = load_settings(Path(file), isolated=isolated, config_file=chosen, overrides=given)
        if settings.source_of("torch") == DEFAULT_SOURCE:
            given = {"torch": _NEWEST}
            settings = load_settings(Path(file), isolated=isolated, config_file=chosen, overrides=given)
    except ConfigError as error:
        raise UserError(str(error)) from error
    return settings


def _text(file: str, regions: tuple[RegionListing, ...], differences: bool) -> str:
    from amplint.report.frame import Look
    from amplint.report.table import table

    look = Look(wants_color(sys.stdout), sys.stdout.encoding or "utf-8")
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    if not regions:
        return f"{file}: nothing was found that runs in an autocast region\n"
    parts = []
    for region in regions:
        rows = _chosen(region, differences)
        title = f"{region.place.file}:{region.place.line}: {region.place.code} ({_shown(region.dtypes)})"
        counted = _counted(region)
        if not rows:
            parts.append(f"{title}\n{counted}\n")
            continue
        cells = [
            (
                _where(row.place, region.place.file),
                row.operator,
                _operands(row),
                _shown(row.cuda),
                _shown(row.npu),
                _why(row),
            )
            for row in rows
        ]
        parts.append(
            table(title, _COLUMNS, cells, look, [row.differs for row in rows], width) + counted + "\n"
        )
    return "\n".join(parts)


def _counted(region: RegionListing) -> str:
    total = len(region.operations)
    different = sum(row.differs for row in region.operations)
    noun = "operator" if total == 1 else "operators"
    return f"{total} {noun}, {different or 'none'} of another dtype on NPU than on CUDA"


def _chosen(region: RegionListing, differences: bool) -> list[Operation]:
    return [row for row in region.operations if row.differs or not differences]


def _why(row: Operation) -> str:
    if row.by_itself:
        return "autocast's lists differ"
    return "its operands differ" if row.differs else ""


def _operands(row: Operation) -> str:
    pairs = zip(row.operands, row.npu_operands, strict=True)
    return ", ".join(_shown(a) if a == b else f"{_shown(a)} ({_shown(b)})" for a, b in pairs)


def _where(place: Place, file: str) -> str:
    """The line, with the file where that is another one."""
    return place.line if place.file == file else f"{place.file}:{place.line}"


def _shown(dtypes: frozenset[str]) -> str:
    return " or ".join(sorted(dtypes, key=lambda dtype: (dtype == "?", dtype))) or "?"


def _described(region: RegionListing, differences: bool) -> dict[str, object]:
    return {
        **_placed(region.place),
        "dtypes": sorted(region.dtypes),
        "operators": [
            {
                **_placed(row.place),
                "operator": row.operator,
                "operands": [sorted(dtypes) for dtypes in row.operands],
                "npu_operands": [sorted(dtypes) for dtypes in row.npu_operands],
                "cuda": sorted(row.cuda),
                "npu": sorted(row.npu),
                "differs": row.differs,
                "by_itself": row.by_itself,
            }
            for row in _chosen(region, differences)
        ],
    }


def _placed(place: Place) -> dict[str, object]:
    return {
        "file": place.file,
        "cell": place.cell,
        "line": place.row,
        "column": place.column,
        "code": place.code,
    }
