"""What AMP201 says about a text, without the command line around it."""

from __future__ import annotations

from datetime import date
from textwrap import dedent

import libcst as cst
from amplint_rules.scaler.clip_before_unscale import RULE

from amplint.audit import Audit
from amplint.config import Settings
from amplint.finding import Confidence, Fix
from amplint.fix import apply
from amplint.gate import admit
from amplint.model.module import ModuleModel
from amplint.project.link import Project
from amplint.rule import Context, Report
from amplint.source import source_from_text
from amplint.suppress import parse_suppressions

IMPORTS = "import torch\nfrom torch.nn.utils import clip_grad_norm_, clip_grad_value_\n"


def model_of(text: str) -> ModuleModel:
    source = source_from_text(text, "train.py")
    return ModuleModel(source, cst.parse_module(source.text))


def context(text: str) -> Context:
    model = model_of(text)
    audit = Audit(model.source, parse_suppressions(model.source), date.today(), (), ())
    return Context(model, Settings(), Project(), lambda code, node: True, audit)


def reports(body: str) -> tuple[Context, list[Report]]:
    ctx = context(IMPORTS + dedent(body))
    found = list(RULE.check(ctx))
    assert not found or is_admitted(ctx.model.source.text), "the gate keeps a file with findings out"
    return ctx, found


def is_admitted(text: str) -> bool:
    """Whether the file is parsed at all for the sake of AMP201."""
    return bool(admit(source_from_text(text, "train.py"), [RULE]).rules)


def clips(body: str, confidence: Confidence | None = None) -> list[str]:
    """The code reported at, at default confidence (or exactly at `confidence`)."""
    ctx, found = reports(body)
    return [
        ctx.model.tree.code(report.node)
        for report in found
        if (report.confidence is confidence if confidence else report.confidence is not Confidence.LOW)
    ]


def all_clips(body: str) -> list[tuple[str, Confidence | None]]:
    ctx, found = reports(body)
    return [(ctx.model.tree.code(report.node), report.confidence) for report in found]


def fix_of(body: str) -> Fix | str:
    _, found = reports(body)
    assert len(found) == 1
    assert found[0].fix is not None
    return found[0].fix()


def repaired(body: str) -> str:
    """The body after the one fix, without the imports put before it."""
    fix = fix_of(body)
    assert isinstance(fix, Fix), fix
    text = IMPORTS + dedent(body)
    for edit in sorted(fix.edits, key=lambda edit: edit.span, reverse=True):
        text = text[: edit.span.start] + edit.content + text[edit.span.end :]
    assert not clips(text), text
    return text.removeprefix(IMPORTS)


def repaired_all(body: str) -> str:
    """The body after all fixes at once, without the imports put before it."""
    _, found = reports(body)
    fixes = [report.fix() for report in found if report.fix is not None]
    text = apply(IMPORTS + dedent(body), [fix for fix in fixes if isinstance(fix, Fix)]).text
    assert not clips(text), text
    return text.removeprefix(IMPORTS)


def reasons(body: str) -> list[str]:
    """Why there is no fix, for each report."""
    _, found = reports(body)
    made = [report.fix() for report in found if report.fix is not None]
    assert all(isinstance(fix, str) for fix in made), made
    return [str(fix) for fix in made]
