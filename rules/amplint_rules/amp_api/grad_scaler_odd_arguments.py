"""Arguments of GradScaler that hardly anybody means: no scale at all, a scale that overflows, swapped factors."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import libcst as cst

from amplint.finding import Confidence, Severity
from amplint.model.scalers import scaler_params
from amplint.port.device import calls_of
from amplint.port.flags import number_value
from amplint.rule import Context, Report, Rule
from amplint_rules import shapes

_LARGEST_SCALE = 2.0**24
_FLOAT16_MAX = 65504.0
_SHORTEST_INTERVAL = 100


def check(ctx: Context) -> Iterable[Report]:
    """Report constructions of enabled scalers whose literal arguments are odd."""
    for call, name in calls_of(ctx, tuple(scaler_params())):
        given = dict(_arguments(call, scaler_params()[name]))
        enabled = given.get("enabled")
        if isinstance(enabled, cst.Name) and enabled.value == "False":
            continue
        numbers = {key: number_value(value) for key, value in given.items()}
        for message in _judge({key: value for key, value in numbers.items() if value is not None}):
            yield Report(call, message)


def _arguments(call: cst.Call, params: tuple[str, ...]) -> Iterator[tuple[str, cst.BaseExpression]]:
    """The arguments by the name of their parameter; behind a `*` positions are unknown."""
    position = 0
    for arg in call.args:
        if arg.star == "*":
            position = len(params)
        elif arg.keyword is not None:
            yield arg.keyword.value, arg.value
        elif not arg.star and position < len(params):
            yield params[position], arg.value
            position += 1


def _judge(given: dict[str, float]) -> Iterator[str]:
    scale, interval = given.get("init_scale"), given.get("growth_interval")
    growth, backoff = given.get("growth_factor"), given.get("backoff_factor")
    if scale is not None and scale <= 1:
        yield f"init_scale={scale:g} scales nothing up: gradients below 2.98e-8 become zero, as without a scaler"
    elif scale is not None and scale > _LARGEST_SCALE:
        yield (
            f"with init_scale={scale:g} gradients above {_FLOAT16_MAX / scale:.2g} overflow float16:"
            " the first steps are skipped"
        )
    if interval is not None and interval < _SHORTEST_INTERVAL:
        yield f"with growth_interval={interval:g} the scale is soon too large again, and each time a step is skipped"
    if growth is not None and backoff is not None and growth < 1 < backoff:
        yield f"growth_factor={growth:g} and backoff_factor={backoff:g} are swapped: GradScaler raises AssertionError"
        return
    if growth is not None and growth <= 1:
        yield f"growth_factor={growth:g} is not above 1: GradScaler raises AssertionError"
    if backoff is not None and backoff >= 1:
        yield f"backoff_factor={backoff:g} is not below 1: GradScaler raises AssertionError"


RULE = Rule(
    code="AMP114",
    name="grad-scaler-odd-arguments",
    summary="a GradScaler is made with a scale, an interval or factors that hardly anybody means",
    severity=Severity.WARNING,
    confidence=Confidence.MEDIUM,
    check=check,
    words=("GradScaler",),
    shape=shapes.grad_scaler_odd_arguments,
    module=__name__,
)
