"""An optimizer that updates float16 or bfloat16 parameters in place, without float32 copies of them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

import libcst as cst

from amplint.finding import Confidence, Severity
from amplint.flow.precision.lattice import BF16, F16
from amplint.flow.precision.notes import Applied
from amplint.flow.precision.values import (
    Many,
    Mapping_,
    Ref,
    Sequence_,
    Tensor,
    Value,
    alternatives,
    join_all,
)
from amplint.rule import Context, Report, Rule
from amplint_rules import shapes
from amplint_rules.precision import evidence
from amplint_rules.precision.evidence import Suspect

_OPTIMIZERS = "torch.optim."
#: Names beside which parameters in low precision are looked after: float32 masters, rounding that loses nothing on
#: average, adapters that are float32.
_LOOKED_AFTER = re.compile(
    r"master|fp16_?optimizer|bf16_?optimizer|mixedprecisionoptimizer|float16optimizer|kahan|stochastic|compensat"
    r"|peft|lora|adapter|kbit|cast_training_params|upcast_trainable|prep_param_lists|deepspeed",
    re.IGNORECASE,
)
#: Steps below this part of a parameter are rounded away whatever it is: half of the last place at most.
_LOST = {F16: "1/4096", BF16: "1/512"}


def check(ctx: Context) -> Iterable[Report]:
    """Report each optimizer of torch that is made for parameters in low precision."""
    if any(_LOOKED_AFTER.search(name.value) for name in ctx.model.tree.of_type(cst.Name)):
        return
    yield from evidence.reports(
        ctx,
        _suspects(ctx),
        "what is cast along with the parameters (inputs, other modules) has to become float32 again as well: "
        "drop the casts and let autocast choose",
    )


def _suspects(ctx: Context) -> Iterator[Suspect]:
    has_scaler = any(name.value.endswith("GradScaler") for name in ctx.model.tree.of_type(cst.Name))
    for applied in evidence.notes(ctx).applied:
        if not applied.op.startswith(_OPTIMIZERS) or not isinstance(applied.result, Ref):
            continue
        parameters = _parameters(applied)
        if parameters is None:
            continue
        sure = evidence.confidence(parameters.dtypes, high=Confidence.MEDIUM)
        if sure is None or (has_scaler and F16 in parameters.dtypes):  # AMP219 speaks of those
            continue
        dtype = evidence.said(parameters.dtypes)
        lost = _LOST.get(dtype, _LOST[BF16])
        name = applied.op.rpartition(".")[2]
        yield Suspect(
            applied.site,
            f"{name} updates {dtype} parameters in place here: a step below {lost} of a parameter is rounded away, and "
            f"the optimizer's state is {dtype} as well; keep the parameters float32 and compute under autocast",
            (*evidence.origin(parameters), (applied.site, f"{name} is made for {dtype} parameters")),
            sure,
            applied.entry,
        )


def _parameters(applied: Applied) -> Tensor | None:
    """What the optimizer is given, as one tensor."""
    given = applied.argument(0, "params")
    found = list(_tensors(given)) if given is not None else []
    if not found:
        return None
    joined = join_all(found)
    return joined if isinstance(joined, Tensor) else None


def _tensors(value: Value) -> Iterator[Tensor]:
    """The tensors in parameters or groups of parameters; of what is not known nothing is said."""
    for one in alternatives(value):
        if isinstance(one, Tensor):
            yield one
        elif isinstance(one, Many):
            yield from _tensors(one.element)
        elif isinstance(one, Sequence_):
            # named parameters are pairs of a name and a parameter
            for item in one.items:
                yield from _tensors(item)
        elif isinstance(one, Mapping_):
            yield from (t for key, item in one.items if key == "params" for t in _tensors(item))


RULE = Rule(
    code="AMP312",
    name="half-weights-with-optimizer",
    summary="an optimizer updates float16 or bfloat16 parameters, without float32 copies",
    severity=Severity.WARNING,
    check=check,
    words=shapes.LOW_PRECISION_WORDS,
    shape=shapes.half_weights_with_optimizer,
    confidence=Confidence.MEDIUM,
    module=__name__,
)
