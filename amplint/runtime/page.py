"""A page that shows a record: curves, skipped steps, findings. One file, no network, no scripts."""

import html
import json
import math
import os
from typing import Any, Dict, Iterator, List, Optional, Tuple

_WIDTH, _HEIGHT, _LEFT, _BOTTOM = 860, 170, 70, 22
#: Points of a curve; longer runs are thinned out, keeping the extremes of every column.
_POINTS = 2000

_STYLE = """
body { font: 15px/1.45 system-ui, sans-serif; margin: 2rem auto; max-width: 60rem; padding: 0 1rem; color: #1b1f24 }
h1 { font-size: 1.4rem } h2 { font-size: 1.1rem; margin: 1.6rem 0 .4rem }
svg { width: 100%; height: auto; background: #fafbfc; border: 1px solid #d9dee3 }
svg text { font: 11px system-ui, sans-serif; fill: #57606a }
.curve { fill: none; stroke: #1f6feb; stroke-width: 1.2 } .grid { stroke: #e4e8ec }
.skip { stroke: #d1242f; stroke-width: 1; opacity: .65 } .first { stroke: #9a6700; stroke-dasharray: 4 3 }
.dot { fill: #1f6feb } .bad { fill: #d1242f }
li { margin: .5rem 0 } code { background: #f0f2f4; padding: .1rem .25rem; border-radius: 3px }
.error { color: #b3141f } .warning { color: #8a5a00 } small { color: #57606a }
"""


def read_runs(path: str) -> List[List[Dict[str, Any]]]:
    """The runs in a record, each as its lines in order; what is no complete line is left out.

    Raises:
        OSError: the file cannot be read.
    """
    runs: List[List[Dict[str, Any]]] = []
    with open(path, encoding="utf-8", errors="replace") as file:
        for line in file:
            try:
                value = json.loads(line)
            except ValueError:
                continue
            if not isinstance(value, dict):
                continue
            if value.get("event") == "run":
                runs.append([])
            if runs:
                runs[-1].append(value)
    return runs


def write_page(record: str) -> str:
    """Write the page of the last run in a record beside it; the page's path.

    Raises:
        OSError: the record cannot be read, or the page not be written.
    """
    runs = read_runs(record)
    path = os.path.splitext(record)[0] + ".html"
    temporary = f"{path}.{os.getpid()}.tmp"
    try:
        with open(temporary, "w", encoding="utf-8") as file:
            file.write(page(runs[-1] if runs else []))
        os.replace(temporary, path)
    except OSError:
        if os.path.exists(temporary):
            os.unlink(temporary)
        raise
    return path


def page(lines: List[Dict[str, Any]]) -> str:
    """The page of one run."""
    run: Dict[str, Any] = lines[0] if lines else {}
    end = next((each for each in lines if each.get("event") == "end"), None)
    steps = [each for each in lines if each.get("event") == "step"]
    first = next((each for each in lines if each.get("event") == "nonfinite"), None)
    title = " ".join(map(str, run.get("argv", []))) or "a run"
    parts = [
        "<!doctype html>",
        f'<html lang="en"><meta charset="utf-8"><title>amplint: {_text(title)}</title><style>{_STYLE}</style>',
        f"<h1>{_text(title)}</h1>",
        f"<p>{_text(_facts(run, steps, end))}</p>",
        *_findings(lines),
    ]
    if first is not None:
        parts.append("<h2>First Inf or NaN</h2>")
        parts.append(f"<p>{_text(_first(first))}</p>")
    for optimizer in sorted({each["optimizer"] for each in steps}):
        rows = [each for each in steps if each["optimizer"] == optimizer]
        where = (
            f", optimizer {optimizer}" if optimizer or len({each["optimizer"] for each in steps}) > 1 else ""
        )
        for key, name, log in (
            ("loss", "Loss", False),
            ("grad_norm", "Gradient norm", True),
            ("scale", "Loss scale", True),
        ):
            if any(each.get(key) is not None for each in rows):
                parts.append(f"<h2>{name}{where}</h2>")
                parts.append(_curve(rows, key, log, first["step"] if first else None))
    parts.append(
        "<p><small>Red: skipped steps, and values that are Inf or NaN. Dashed: the first overflow.</small></p>"
    )
    return "\n".join(parts) + "</html>\n"


def _facts(run: Dict[str, Any], steps: List[Dict[str, Any]], end: Optional[Dict[str, Any]]) -> str:
    skipped = sum(bool(each.get("skipped")) for each in steps)
    facts = [f"{len(steps)} optimizer steps", f"{skipped} skipped"]
    if run:
        facts += [f"rank {run.get('rank')} of {run.get('world_size')}", f"torch {run.get('torch')}"]
    if end is None:
        facts.append("the run did not end by itself, or is still going on")
    elif end.get("failed"):
        facts.append("ended by an exception")
    return "; ".join(facts)


def _findings(lines: List[Dict[str, Any]]) -> Iterator[str]:
    found = [each["finding"] for each in lines if each.get("event") == "finding"]
    yield "<h2>Findings</h2>"
    if not found:
        yield "<p>None.</p>"
        return
    yield "<ul>"
    for each in sorted(found, key=lambda one: (one["step"], one["code"])):
        place = f"{each['filename']}:{each['location']['row']}"
        module = (
            f"<br><small>in module <code>{_text(each['module'])}</code></small>" if each.get("module") else ""
        )
        yield (
            f'<li><b class="{_text(each["severity"])}">{_text(each["code"])} {_text(each["name"])}</b>'
            f" <code>{_text(place)}</code> step {each['step']}<br>{_text(each['message'])}{module}</li>"
        )
    yield "</ul>"


def _first(event: Dict[str, Any]) -> str:
    parameter = f", parameter {event['parameter']}" if event.get("parameter") else ""
    return (
        f"step {event['step']}, {event['pass']} pass: module {event.get('module') or '(unknown)'}{parameter}"
    )


def _curve(rows: List[Dict[str, Any]], key: str, log: bool, first: Optional[int]) -> str:
    last: int = max(1, max(each["step"] for each in rows))
    points = [(each["step"], value) for each in rows if (value := _number(each.get(key))) is not None]
    finite = [value for _, value in points if math.isfinite(value) and (value > 0 or not log)]
    low: float = min(finite, default=0.0)
    high: float = max(finite, default=1.0)
    if log:
        low, high = math.log2(low) if finite else 0.0, math.log2(high) if finite else 1.0
    if high - low < 1e-12:
        low, high = low - 1, high + 1

    def x(step: float) -> float:
        return _LEFT + (_WIDTH - _LEFT - 10) * step / last

    def y(value: float) -> float:
        level: float = value if not log else math.log2(value) if value > 0 else low
        share: float = (level - low) / (high - low)
        return 10 + (_HEIGHT - _BOTTOM - 10) * (1 - share)

    shapes = [f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{_text(key)} by step">']
    for share in (0, 0.5, 1):
        level = low + share * (high - low)
        shown = math.pow(2.0, level) if log else level
        height = 10 + (_HEIGHT - _BOTTOM - 10) * (1 - share)
        shapes.append(
            f'<line class="grid" x1="{_LEFT}" x2="{_WIDTH - 10}" y1="{height:.1f}" y2="{height:.1f}"/>'
        )
        shapes.append(f'<text x="{_LEFT - 6}" y="{height + 4:.1f}" text-anchor="end">{shown:.4g}</text>')
    for step in (0, last):
        anchor = "start" if step == 0 else "end"
        shapes.append(f'<text x="{x(step):.1f}" y="{_HEIGHT - 6}" text-anchor="{anchor}">step {step}</text>')
    for each in rows:
        if each.get("skipped"):
            shapes.append(_bar("skip", x(each["step"])))
    if first is not None:
        shapes.append(_bar("first", x(first)))
    drawn = _thinned([(step, value) for step, value in points if math.isfinite(value)])
    if len(drawn) == 1:
        shapes.append(f'<circle class="dot" r="2" cx="{x(drawn[0][0]):.1f}" cy="{y(drawn[0][1]):.1f}"/>')
    elif drawn:
        path = " ".join(f"{x(step):.1f},{y(value):.1f}" for step, value in drawn)
        shapes.append(f'<polyline class="curve" points="{path}"/>')
    for step, value in points:
        if not math.isfinite(value):
            shapes.append(f'<circle class="bad" r="2.5" cx="{x(step):.1f}" cy="10"/>')
    return "\n".join([*shapes, "</svg>"])


def _bar(kind: str, at: float) -> str:
    return f'<line class="{kind}" x1="{at:.1f}" x2="{at:.1f}" y1="10" y2="{_HEIGHT - _BOTTOM}"/>'


def _thinned(points: List[Tuple[int, float]]) -> List[Tuple[int, float]]:
    if len(points) <= _POINTS:
        return points
    width = -(-2 * len(points) // _POINTS)
    kept: List[Tuple[int, float]] = []
    for start in range(0, len(points), width):
        part = points[start : start + width]
        kept.extend(sorted({min(part, key=lambda each: each[1]), max(part, key=lambda each: each[1])}))
    return kept


def _number(value: Any) -> Optional[float]:
    """A value of a record, in which NaN and Inf are strings."""
    return None if value is None else float(value)


def _text(value: Any) -> str:
    return html.escape(str(value), quote=True)
