"""The repair of AMP201: where `unscale_` goes, and when there is no telling."""

from __future__ import annotations

from textwrap import dedent, indent

import pytest

from amplint.finding import Applicability, Fix, FixKind

from .checking import fix_of, reasons, repaired, repaired_all

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
            "no name",
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


# -- helpers that are reached in several ways ----------------------------------------------------------------

TRAINER = """
class Trainer:
    def clip(self):
        clip_grad_norm_(self.model.parameters(), 1.0)

    def fit(self, loss):
        self.scaler.scale(loss).backward()
        self.clip()
        self.scaler.step(self.optimizer)
        self.scaler.update()
{more}
"""
INSERTED = "        self.scaler.unscale_(self.optimizer)\n        clip_grad_norm_"


def test_helper_that_is_also_called_where_nothing_is_scaled_is_left_alone() -> None:
    more = """
    def fit_fp32(self, loss):
        loss.backward()
        self.clip()
        self.optimizer.step()
    """
    assert reasons(TRAINER.format(more=more)) == [
        "the helper also runs where nothing is scaled (line 16); call unscale_ where it is called"
    ]


@pytest.mark.parametrize(
    "more",
    [
        """
    def prepare(self):
        self.clip()

    def fit_fp32(self, loss):
        loss.backward()
        self.prepare()
        self.optimizer.step()
    """,
        """
    def main(self, loss, amp):
        if amp:
            self.fit(loss)
        else:
            loss.backward()
            self.clip()
            self.optimizer.step()
    """,
        """
    def attach(self, engine):
        engine.before_step(self.clip)
    """,
        """
    def one(self, n):
        self.clip()
        if n:
            self.other(n)

    def other(self, n):
        self.one(n - 1)
    """,
    ],
)
def test_a_way_to_the_helper_without_scaling_may_be_long_or_hidden(more: str) -> None:
    (reason,) = reasons(TRAINER.format(more=more))
    assert "where nothing is scaled" in reason


@pytest.mark.parametrize(
    "more",
    [
        "",
        """
    def fit_again(self, loss):
        self.scaler.scale(loss / 2).backward()
        self.clip()
        self.scaler.step(self.optimizer)
        self.scaler.update()
    """,
        """
    def prepare(self):
        self.clip()

    def fit_long(self, loss):
        self.scaler.scale(loss).backward()
        self.prepare()
        self.scaler.step(self.optimizer)
        self.scaler.update()
    """,
        """
    def evaluate(self, loss):
        loss.backward()
        self.optimizer.step()
    """,
    ],
)
def test_helper_that_only_runs_behind_a_scaled_backward_is_repaired(more: str) -> None:
    assert INSERTED in repaired(TRAINER.format(more=more))


def test_helper_that_steps_under_a_condition_gets_that_condition() -> None:
    body = """
    class Trainer:
        def finish(self):
            clip_grad_norm_(self.model.parameters(), 1.0)
            if self.amp:
                self.scaler.step(self.optimizer)
                self.scaler.update()
            else:
                self.optimizer.step()

        def fit(self, loss):
            self.scaler.scale(loss).backward()
            self.finish()

        def fit_fp32(self, loss):
            loss.backward()
            self.finish()
    """
    fixed = repaired(body)
    assert (
        "        if self.amp:\n            self.scaler.unscale_(self.optimizer)\n        clip_grad" in fixed
    )


def test_helper_that_has_unscaled_elsewhere_is_left_alone() -> None:
    more = """
    def fit_right(self, loss):
        self.scaler.scale(loss).backward()
        self.scaler.unscale_(self.optimizer)
        self.clip()
        self.scaler.step(self.optimizer)
        self.scaler.update()
    """
    assert reasons(TRAINER.format(more=more)) == ["on other paths unscale_ has already run here"]


def test_helper_that_clips_several_times_before_a_step_is_left_alone() -> None:
    body = """
    class Trainer:
        def clip(self, part):
            clip_grad_norm_(part.parameters(), 1.0)

        def fit(self, loss):
            self.scaler.scale(loss).backward()
            for part in self.parts:
                self.clip(part)
            self.scaler.step(self.optimizer)
            self.scaler.update()
    """
    (reason,) = reasons(body)
    assert "several times" in reason


# -- the guard -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "between",
    [
        """
        if not amp:
            optimizer.step()
            return
        scaler.step(optimizer)
        scaler.update()
        """,
        """
        if skip:
            return
        if amp:
            scaler.step(optimizer)
            scaler.update()
        else:
            optimizer.step()
        """,
        """
        was, amp = amp, False
        if was:
            scaler.step(optimizer)
            scaler.update()
        else:
            optimizer.step()
        """,
    ],
)
def test_no_guard_where_the_condition_of_the_step_is_another_before_the_clip(between: str) -> None:
    body = """
    def train(model, optimizer, scaler, loss, amp, skip):
        if amp:
            scaler.scale(loss).backward()
        else:
            loss.backward()
        clip_grad_norm_(model.parameters(), 1.0)
    """
    (reason,) = reasons(dedent(body) + indent(dedent(between), "    "))
    assert "nothing is scaled" in reason or "no step follows" in reason


# -- no step, several clips ----------------------------------------------------------------------------------

LATE = """
def train(model, optimizer, scaler, loss):
    scaler.scale(loss).backward()
    clip_grad_norm_(model.parameters(), 1.0)
    scaler.unscale_(optimizer)
    {last}
"""


@pytest.mark.parametrize(
    ("last", "applicability"),
    [
        ("scaler.step(optimizer); scaler.update()", Applicability.SAFE),
        ("return scaler", Applicability.UNSAFE),
        ("finish(scaler, optimizer)", Applicability.UNSAFE),
    ],
)
def test_a_move_is_safe_only_where_the_step_is_seen(last: str, applicability: Applicability) -> None:
    fix = fix_of(LATE.format(last=last))
    assert isinstance(fix, Fix)
    assert fix.applicability is applicability


def test_unscale_is_not_moved_over_a_way_out() -> None:
    body = LATE.format(last="scaler.step(optimizer)").replace(
        "    scaler.unscale_", "    if model.bad:\n        return\n    scaler.unscale_"
    )
    (reason,) = reasons(body)
    assert "can be left" in reason


def test_clips_in_a_row_get_one_unscale() -> None:
    body = PLAIN.format(before="clip_grad_value_(model.parameters(), 0.5)\n    ")
    assert repaired_all(body) == body.replace(
        "    clip_grad_value_", "    scaler.unscale_(optimizer)\n    clip_grad_value_"
    )


def test_clips_in_a_row_get_one_move() -> None:
    body = """
    def train(model, optimizer, scaler, loss):
        scaler.scale(loss).backward()
        clip_grad_value_(model.parameters(), 0.5)
        clip_grad_norm_(model.parameters(), 1.0)
        scaler.unscale_(optimizer)
        scaler.step(optimizer)
        scaler.update()
    """
    fixed = repaired_all(body)
    assert fixed.count("unscale_") == 1
    assert "    scaler.unscale_(optimizer)\n    clip_grad_value_" in fixed


def test_clips_of_one_loop_over_parameters_get_one_unscale() -> None:
    body = """
    def train(model, optimizer, scaler, loss):
        scaler.scale(loss).backward()
        for p in model.parameters():
            p.grad.clamp_(max=1)
            p.grad.clamp_(min=-1)
        scaler.step(optimizer)
        scaler.update()
    """
    fixed = repaired_all(body)
    assert fixed.count("unscale_") == 1
    assert "    scaler.unscale_(optimizer)\n    for p in" in fixed


def test_clips_that_exclude_each_other_are_repaired_each() -> None:
    body = """
    def train(model, optimizer, scaler, loss, how):
        scaler.scale(loss).backward()
        if how == "value":
            clip_grad_value_(model.parameters(), 0.5)
        elif how == "norm":
            clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
    """
    assert repaired_all(body).count("        scaler.unscale_(optimizer)\n        clip_grad_") == 2


def test_clips_that_may_both_run_before_one_step_are_left_alone() -> None:
    body = """
    def train(model, optimizer, scaler, loss, value, norm):
        scaler.scale(loss).backward()
        if value:
            clip_grad_value_(model.parameters(), 0.5)
        if norm:
            clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
    """
    assert len(set(reasons(body))) == 1
    assert "several clips" in reasons(body)[0]
