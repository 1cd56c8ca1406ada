"""What a run showed, for a terminal."""

from typing import List

from amplint.runtime.context import Run

_RUN_ONLY = "RUN"


def summary(run: Run) -> str:
    """Findings by step, then what was seen at all; ends with a newline."""
    lines: List[str] = []
    several = any(each.rank for each in run.findings) or run.rank
    for each in sorted(run.findings, key=lambda found: (found.step, found.code)):
        place = f"{each.place.shown(run.folder)}:{each.place.row}:{each.place.column}"
        where = f"step {each.step}" + (f", rank {each.rank}" if several else "")
        lines.append(f"{place}: {each.code} {each.name} ({where})")
        lines.append(f"    {each.message}")
        if each.module:
            named = f" ({each.parameter})" if each.parameter else ""
            lines.append(f"    in module {each.module}{named}")
        lines.extend(
            f"    {step.place.shown(run.folder)}:{step.place.row}: {step.message}" for step in each.trace
        )
    lines.extend(f"note: {note}" for note in run.notes)
    count = len(run.findings)
    what = "no findings" if not count else "1 finding" if count == 1 else f"{count} findings"
    steps = "1 optimizer step" if run.step == 1 else f"{run.step} optimizer steps"
    lines.append(f"amplint: {what} in {steps}, {run.skips} skipped")
    if run.record.path is not None and run.record.problem is None:
        lines.append(f"amplint: record in {run.record.path}")
    return "\n".join(lines) + "\n"
