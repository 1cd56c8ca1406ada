"""The repair of AMP201: where `unscale_` goes, and when there is no telling."""

from __future__ import annotations

from textwrap import dedent

import pytest

from amplint.finding import Applicability, Fix, FixKind

from .checking import fix_of, repaired

PLAIN = """
def train(model, optimizer, scaler, loss):
    scaler.scale(loss).backward()
    {before}clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
"""


def test_unscale_goes_on_its_own_line_before_the_clip() -> None:
    fixed = PLAIN.format(before="scaler.unscale_(optimizer)\n    ")
    assert repaired(PLAIN.format(before="")) == fixed


def test_the_fix_is_a_safe_repair() -> None:
    fix = fix_of(PLAIN.format(before=""))
    assert isinstance(fix, Fix)
    assert (fix.kind, fix.applicability) == (FixKind.REPAIR, Applicability.SAFE)


def test_newline_style_and_tabs_are_kept() -> None:
    body = PLAIN.format(before="").replace("    ", "\t").replace("\n", "\r\n")
    assert "\r\n\tscaler.unscale_(optimizer)\r\n\tclip_grad_norm_" in repaired(body)


def test_late_unscale_moves_up_with_its_comment() -> None:
    body = """
    def train(model, optimizer, scaler, loss):
        scaler.scale(loss).backward()
        clip_grad_norm_(model.parameters(), 1.0)
        scaler.unscale_(optimizer)  # fp32 from here on
        scaler.step(optimizer)
        scaler.update()
    """
    wanted = """
    def train(model, optimizer, scaler, loss):
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)  # fp32 from here on
        clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
    """
    assert repaired(body) == dedent(wanted)


def test_unscale_goes_before_the_loop_over_parameters() -> None:
    body = """
    def train(model, optimizer, scaler, loss):
        scaler.scale(loss).backward()
        for p in model.parameters():
            p.grad.clamp_(-1, 1)
        scaler.step(optimizer)
        scaler.update()
    """
    assert "    scaler.unscale_(optimizer)\n    for p in" in repaired(body)


def test_clip_shared_with_the_fp32_path_gets_the_guard_of_the_step() -> None:
    body = """
    def train(model, optimizer, scaler, loss, amp):
        if amp:
            scaler.scale(loss).backward()
        else:
            loss.backward()
        clip_grad_norm_(model.parameters(), 1.0)
        if amp:
            scaler.step(optimizer)
            scaler.update()
        else:
            optimizer.step()
    """
    assert "    if amp:\n        scaler.unscale_(optimizer)\n    clip_grad_norm_" in repaired(body)


def test_attributes_of_self_are_expressible_in_another_method() -> None:
    body = """
    class Trainer:
        def clip(self):
            clip_grad_norm_(self.model.parameters(), 1.0)

        def fit(self, loss):
            self.scaler.scale(loss).backward()
            self.clip()
            self.scaler.step(self.optimizer)
            self.scaler.update()
    """
    assert "        self.scaler.unscale_(self.optimizer)\n        clip_grad_norm_" in repaired(body)


def test_optimizer_that_owns_the_parameters_is_chosen() -> None:
    body = """
    def train(a, b, loss):
        oa, ob = torch.optim.SGD(a.parameters()), torch.optim.SGD(b.parameters())
        scaler = torch.amp.GradScaler("cuda")
        scaler.scale(loss).backward()
        scaler.unscale_(oa)
        clip_grad_norm_(b.parameters(), 1.0)
        scaler.step(oa)
        scaler.step(ob)
        scaler.update()
    """
    assert "scaler.unscale_(ob)\n    clip_grad_norm_(b" in repaired(body)


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (
            """
            def train(model, optimizer, scaler, batches, accum):
                for i, loss in enumerate(batches):
                    scaler.scale(loss).backward()
                    clip_grad_norm_(model.parameters(), 1.0)
                    if (i + 1) % accum == 0:
                        scaler.step(optimizer)
                        scaler.update()
            """,
            "no step follows",
        ),
        (
            """
            def train(model, oa, ob, scaler, loss):
                scaler.scale(loss).backward()
                clip_grad_norm_(model.parameters(), 1.0)
                scaler.step(oa)
                scaler.step(ob)
                scaler.update()
            """,
            "several",
        ),
        (
            """
            def train(model, optimizers, scaler, loss):
                scaler.scale(loss).backward()
                clip_grad_norm_(model.parameters(), 1.0)
                for optimizer in optimizers:
                    scaler.step(optimizer)
                scaler.update()
            """,
            "no step follows",
        ),
        (
            """
            def bound(params):
                torch.nn.utils.clip_grad_norm_(params, 1.0)

            def train(model, optimizer, scaler, loss):
                scaler.scale(loss).backward()
                bound(model.parameters())
                scaler.step(optimizer)
                scaler.update()
            """,
            "no name",
        ),
        (
            """
            def train(model, optimizer, scaler, loss, clip):
                scaler.scale(loss).backward()
                if clip: clip_grad_norm_(model.parameters(), 1.0)
                scaler.step(optimizer)
                scaler.update()
            """,
            "line",
        ),
        (
            """
            def train(model, optimizer, scaler, loss):
                scaler.scale(loss).backward(); clip_grad_norm_(model.parameters(), 1.0)
                scaler.step(optimizer)
                scaler.update()
            """,
            "line",
        ),
        (
            """
            def train(model, scaler, loss):
                scaler.scale(loss).backward()
                clip_grad_norm_(model.parameters(), 1.0)
            """,
            "not in this file",
        ),
    ],
)
def test_no_fix_where_there_is_a_choice(body: str, reason: str) -> None:
    fix = fix_of(body)
    assert isinstance(fix, str)
    assert reason in fix
