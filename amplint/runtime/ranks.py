"""Do all ranks skip the same steps, with the same scale and dtypes?

Ranks tell each other through the store that torch.distributed met at, never through a collective: a collective
that one rank does not reach would hang the run, and differing ranks are what is looked for. Each rank posts
what it did in blocks of steps; rank 0 compares a block when all of them are there.
"""

import json
import os
import time
from itertools import count
from typing import Any, Dict, List, Optional, Tuple

from amplint.runtime.context import Run
from amplint.runtime.place import Site
from amplint.runtime.precision import PrecisionWatch
from amplint.runtime.tracked import TrackedOptimizer, TrackedScaler

_BLOCK = 20
#: Seconds that rank 0 waits at the end for what the others did last.
_PATIENCE = 5.0
#: Numbers the observations of a process, so that each has keys of its own in the store.
_observations = count()


class RankWatch:
    """Compares the ranks; idle in a run of one process."""

    def __init__(self, run: Run, precision: PrecisionWatch) -> None:
        self._run = run
        self._precision = precision
        self._store: Any = None
        self._rank = 0
        self._size = 1
        self._posted = 0
        self._compared = 0
        #: What happened in this block: step -> optimizer -> (skipped, scale, dtypes of gradients).
        self._block: Dict[int, Dict[str, List[Any]]] = {}
        self._scales: Dict[Tuple[int, int], float] = {}
        self._site: Optional[Site] = None
        self._steps = 0
        run.on_step(self._step)
        run.on_drained(self._drained)
        run.on_value("scale", self._scale_then(run))

    def _scale_then(self, run: Run) -> Any:
        before = run._value_handlers.get("scale")

        def handler(value: float, *rest: Any) -> None:
            if self._store is not None:
                for index, step in rest[-1]:
                    self._scales[index, step] = value
            if before is not None:
                before(value, *rest)

        return handler

    def _find_store(self) -> bool:
        if self._store is not None:
            return True
        if int(os.environ.get("WORLD_SIZE", "0") or 0) == 1:
            return False
        import torch.distributed

        dist: Any = torch.distributed

        if not dist.is_available() or not dist.is_initialized() or dist.get_world_size() < 2:
            return False
        self._store = dist.PrefixStore(
            f"amplint/{next(_observations)}", dist.distributed_c10d._get_default_store()
        )
        self._rank, self._size = dist.get_rank(), dist.get_world_size()
        self._run.rank = self._rank
        return True

    def _step(
        self, tracked: TrackedOptimizer, own: Optional[TrackedScaler], skipped: bool, step: int
    ) -> None:
        if self._store is None and ((step > 3 and step % _BLOCK) or not self._find_store()):
            return
        self._site = tracked.step_site
        self._steps = max(self._steps, step + 1)
        dtypes = sorted({str(each.grad.dtype) for each in tracked.parameters()[:8] if each.grad is not None})
        regions = sorted({str(dtype) for _, dtype in self._precision.last_regions})
        self._block.setdefault(step, {})[str(tracked.index)] = [skipped, None, dtypes, regions]

    def _drained(self) -> None:
        if self._store is None:
            return
        complete = self._run.step // _BLOCK
        while self._posted < complete:
            self._post(self._posted, final=False)
        if self._rank == 0:
            self._compare_ready()

    def _post(self, number: int, final: bool) -> None:
        steps = {step: self._block.pop(step) for step in sorted(self._block) if step < (number + 1) * _BLOCK}
        for step, optimizers in steps.items():
            for index, facts in optimizers.items():
                facts[1] = self._scales.pop((int(index), step), None)
        message = json.dumps({"steps": steps, "final": final, "total": self._steps})
        self._store.set(f"{number}/{self._rank}", message)
        self._posted = number + 1

    def _compare_ready(self) -> bool:
        """Compare the blocks that all ranks posted; whether the last one was among them."""
        while True:
            keys = [f"{self._compared}/{rank}" for rank in range(self._size)]
            if not self._store.check(keys):
                return False
            blocks = [json.loads(self._store.get(key)) for key in keys]
            self._compared += 1
            if self._compare(blocks) or any(block["final"] for block in blocks):
                return True

    def _compare(self, blocks: List[Dict[str, Any]]) -> bool:
        """Whether ranks differ in these blocks."""
        mine = blocks[0]["steps"]
        for rank, block in enumerate(blocks[1:], 1):
            for step in sorted({*mine, *block["steps"]}, key=int):
                ours, theirs = mine.get(step), block["steps"].get(step)
                if ours is None or theirs is None:
                    self._report(
                        "AMP220", f"rank {0 if ours else rank} steps and the other does not", step, rank
                    )
                    return True
                for index in sorted({*ours, *theirs}):
                    if (
                        index in ours
                        and index in theirs
                        and self._differs(ours[index], theirs[index], step, rank)
                    ):
                        return True
        return False

    def _differs(self, ours: List[Any], theirs: List[Any], step: str, rank: int) -> bool:
        if ours[0] != theirs[0]:
            who = rank if theirs[0] else 0
            self._report("AMP220", f"rank {who} skips this step and rank {rank - who} takes it", step, rank)
        elif ours[2] != theirs[2] or ours[3] != theirs[3]:
            kinds = [", ".join(each[3] or each[2]) or "nothing" for each in (ours, theirs)]
            self._report("AMP322", f"rank 0 computes in {kinds[0]} and rank {rank} in {kinds[1]}", step, rank)
        elif ours[1] != theirs[1] and None not in (ours[1], theirs[1]):
            self._report(
                "AMP220",
                f"the loss scale is {ours[1]:g} on rank 0 and {theirs[1]:g} on rank {rank}",
                step,
                rank,
            )
        else:
            return False
        return True

    def _report(self, code: str, what: str, step: str, rank: int) -> None:
        self._run.report(
            code,
            f"ranks disagree: {what}; their weights drift apart from here on",
            self._site,
            int(step),
            subject="ranks",
            figures=(("other_rank", float(rank)),),
        )

    def closing(self, failed: bool) -> None:
        """Post the rest; rank 0 waits a little for the others."""
        if self._store is None:
            return
        self._post(self._posted, final=True)
        if self._rank:
            return
        patience = time.monotonic() + (0.5 if failed else _PATIENCE)
        while not self._compare_ready() and time.monotonic() < patience:
            time.sleep(0.05)
