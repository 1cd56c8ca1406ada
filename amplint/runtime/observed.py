"""What the verifier reports: findings of the shape that `amplint check --output-format json` writes, and more.

Codes that begin with AMP are those of the static rules; RUN ones have no static counterpart, because only
a run can show them.
"""

import hashlib
from dataclasses import dataclass
from typing import Any, Dict, Optional, Tuple

from amplint.runtime.place import Place

#: Code -> (name, severity). The AMP part has the names of the static rules, which a test compares.
KINDS: Dict[str, Tuple[str, str]] = {
    "AMP104": ("autocast-hardcoded-cuda", "error"),
    "AMP105": ("grad-scaler-default-device", "error"),
    "AMP201": ("clip-before-unscale", "error"),
    "AMP203": ("scaler-step-bypass", "error"),
    "AMP204": ("missing-scaler-update", "error"),
    "AMP205": ("repeated-unscale", "error"),
    "AMP206": ("update-during-accumulation", "error"),
    "AMP207": ("backward-without-scale", "error"),
    "AMP208": ("clip-after-step", "error"),
    "AMP210": ("scaler-step-closure", "error"),
    "AMP211": ("repeated-update", "error"),
    "AMP216": ("zero-grad-misplaced", "error"),
    "AMP217": ("bf16-with-grad-scaler", "warning"),
    "AMP218": ("fp16-without-grad-scaler", "warning"),
    "AMP219": ("fp16-params-with-grad-scaler", "error"),
    "AMP220": ("rank-local-nonfinite-skip", "error"),
    "AMP224": ("optimizer-without-grads", "error"),
    "AMP301": ("low-precision-accumulation", "warning"),
    "AMP302": ("loss-outside-autocast", "warning"),
    "AMP303": ("low-precision-norm", "warning"),
    "AMP304": ("low-precision-softmax", "warning"),
    "AMP312": ("half-weights-with-optimizer", "warning"),
    "AMP318": ("autocast-dtype-ignored", "warning"),
    "AMP322": ("collective-dtype", "error"),
    "AMP324": ("low-precision-optimizer-state", "warning"),
    "RUN101": ("overflow-rate", "warning"),
    "RUN102": ("declining-loss-scale", "warning"),
    "RUN103": ("every-step-skipped", "error"),
    "RUN104": ("loss-scale-below-one", "error"),
    "RUN105": ("late-overflow", "warning"),
    "RUN106": ("loss-not-finite", "error"),
    "RUN201": ("gradient-underflow", "warning"),
    "RUN202": ("values-near-fp16-limit", "warning"),
    "RUN203": ("updates-lost-in-rounding", "warning"),
}

NO_FIX = "found in a run; `amplint check` proposes fixes"


@dataclass(frozen=True)
class Step:
    """One step of the trace that makes a finding true."""

    place: Place
    message: str


@dataclass(frozen=True)
class Observed:
    """One mistake, as it showed in the run."""

    code: str
    message: str
    place: Place
    #: Optimizer step, counted from 0, skipped ones included.
    step: int
    rank: int
    module: Optional[str] = None
    parameter: Optional[str] = None
    trace: Tuple[Step, ...] = ()
    #: Figures that the message is made of, by name.
    figures: Tuple[Tuple[str, float], ...] = ()

    @property
    def name(self) -> str:
        """The rule's name."""
        return KINDS[self.code][0]

    @property
    def severity(self) -> str:
        """`error`, `warning` or `info`."""
        return KINDS[self.code][1]

    def as_json(self, folder: str) -> Dict[str, Any]:
        """The finding's JSON: keys of a static finding in their order, then those of the run."""
        filename = self.place.shown(folder)
        text = self.place.line.strip()
        base = f"{self.code}\0{filename}\0{text}\0{self.place.column if not text else ''}\0" + "0"
        return {
            "code": self.code,
            "name": self.name,
            "message": self.message,
            "severity": self.severity,
            "confidence": "high",
            "fingerprint": hashlib.sha256(base.encode("utf-8", "surrogatepass")).hexdigest()[:16],
            "filename": filename,
            "cell": None,
            "location": {"row": self.place.row, "column": self.place.column},
            "end_location": {"row": self.place.end_row, "column": self.place.end_column},
            "url": "",
            "trace": [
                {
                    "filename": each.place.shown(folder),
                    "cell": None,
                    "location": {"row": each.place.row, "column": each.place.column},
                    "message": each.message,
                }
                for each in self.trace
            ],
            "fix": None,
            "no_fix_reason": NO_FIX,
            "step": self.step,
            "rank": self.rank,
            "module": self.module,
            "parameter": self.parameter,
            "figures": dict(self.figures),
        }
