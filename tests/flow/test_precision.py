"""The dtype flow: what is believed of values, told by `reveal(value)` in small programs."""

from __future__ import annotations

import re
from pathlib import Path
from textwrap import dedent

import pytest

from amplint.config import Settings
from amplint.engine import model_of
from amplint.flow.precision.analysis import interpret, precision_of
from amplint.flow.precision.explain import said
from amplint.flow.precision.operators import Rules
from amplint.model.module import ModuleModel
from amplint.runner import _File, _Job
from amplint.source import source_from_text
from amplint.work import NO_FIX, Checker

HEAD = "import torch\nimport torch.nn.functional as F\nfrom torch import nn\n"


def revealed(text: str, backend: str = "cuda", torch: tuple[int, int] = (2, 13)) -> dict[int, str]:
    """Row -> what is said of the argument of `reveal`, "" where nothing is known."""
    model = model_of(source_from_text(HEAD + text, "train.py"), Settings())
    assert isinstance(model, ModuleModel)
    return _revealed(model, precision_of(model, None, backend, torch).notes)


def _revealed(model: ModuleModel, notes) -> dict[int, str]:
    found = {}
    for site, (value, _) in notes.names.items():
        if site < 10_000_000:
            node = model.tree.nodes[site]
            parent = model.tree.parent(node)
            if type(parent).__name__ == "Arg" and model.tree.code(model.tree.parent(parent)).startswith(
                "reveal("
            ):
                found[model.source.position(model.tree.span(node).start).row] = said(value)
    return found


def expected(text: str) -> dict[int, str]:
    rows = enumerate((HEAD + text).split("\n"), 1)
    return {
        row: mark[1].strip()
        for row, line in rows
        if (mark := re.search(r"reveal\(.*\)\s*# (.*)", line)) is not None
    }


def check(text: str, **options) -> None:
    text = dedent(text)
    wanted = {row: "" if what == "unknown" else what for row, what in expected(text).items()}
    assert wanted
    found = revealed(text, **options)
    assert {row: found.get(row, "") for row in wanted} == wanted


def test_casts() -> None:
    check(
        """
        x = torch.rand(2)
        reveal(x)  # float32
        a = x.half()
        reveal(a)  # float16
        b = x.to(torch.bfloat16)
        reveal(b)  # bfloat16
        c = x.to(a)
        reveal(c)  # float16
        d = x.to(dtype=a.dtype, device="cuda")
        reveal(d)  # float16
        e = a.to("cuda").to(torch.device("npu"))
        reveal(e)  # float16
        f = a.type_as(x)
        reveal(f)  # float32
        g = x.type(torch.float16)
        reveal(g)  # float16
        h = x.to(getattr(torch, "bfloat16"))
        reveal(h)  # bfloat16
        """
    )


def test_what_a_value_is_cast_to_by_something_unknown_is_not_known() -> None:
    check(
        """
        def f(x: torch.Tensor, dtype, device, args):
            a = x.half().to(dtype)
            reveal(a)  # unknown
            b = x.half().to(device)
            reveal(b)  # float16
            c = x.half().to(args.device)
            reveal(c)  # float16
            d = x.half().to(dtype=args.dtype)
            reveal(d)  # unknown
        """
    )


def test_promotion() -> None:
    check(
        """
        half, full, ints = torch.rand(2).half(), torch.rand(2), torch.arange(3)
        a = half + full
        reveal(a)  # float32
        b = half * 2.5 + 1
        reveal(b)  # float16
        c = half + ints
        reveal(c)  # float16
        d = half * full.sum()
        reveal(d)  # float16
        e = ints * 0.5
        reveal(e)  # float32
        f = ints / 2
        reveal(f)  # float32
        g = half + torch.rand(2).bfloat16()
        reveal(g)  # float32
        h = torch.where(half > 0, half, 0.0)
        reveal(h)  # float16
        half += full
        reveal(half)  # float16
        """
    )


def test_regions() -> None:
    check(
        """
        x = torch.rand(4, 4)
        with torch.autocast("cuda", dtype=torch.float16):
            a = torch.mm(x, x)
            reveal(a)  # float16
            b = a.softmax(-1)
            reveal(b)  # float32
            c = a + 1
            reveal(c)  # float16
            d = a.mean()
            reveal(d)  # float16
            e = a.sum()
            reveal(e)  # float32
            with torch.autocast("cuda", enabled=False):
                f = torch.mm(a, a)
                reveal(f)  # float16
                g = a.softmax(-1)
                reveal(g)  # float16
            h = F.mse_loss(a, x)
            reveal(h)  # float32
        i = a.softmax(-1)
        reveal(i)  # float16
        """
    )


@pytest.mark.parametrize(
    "entered",
    [
        'torch.autocast("cuda", torch.bfloat16)',
        'torch.autocast(device_type="cuda", dtype=torch.bfloat16, enabled=flag)',
        "torch.cuda.amp.autocast(dtype=torch.bfloat16)",
        "region",
        "make()",
        "managed()",
        "(torch.autocast('cuda', dtype=torch.bfloat16) if flag else nullcontext())",
    ],
)
def test_ways_to_enter_a_region(entered: str) -> None:
    check(
        f"""
        from contextlib import contextmanager, nullcontext

        flag = input() == "y"
        region = torch.autocast("cuda", dtype=torch.bfloat16)

        def make():
            return torch.autocast("cuda", dtype=torch.bfloat16)

        @contextmanager
        def managed():
            with make():
                yield

        x = torch.rand(4, 4)
        with {entered}:
            a = x @ x
            reveal(a)  # bfloat16
        b = x @ x
        reveal(b)  # float32
        """
    )


def test_regions_of_other_devices_do_nothing() -> None:
    check(
        """
        x = torch.rand(4, 4)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            a = x @ x
            reveal(a)  # float32
        """
    )


def test_decorators() -> None:
    check(
        """
        @torch.autocast("cuda", dtype=torch.float16)
        def f(x):
            a = x @ x
            reveal(a)  # float16
            return a

        class Op(torch.autograd.Function):
            @staticmethod
            @torch.amp.custom_fwd(device_type="cuda", cast_inputs=torch.float32)
            def forward(ctx, x):
                a = x @ x
                reveal(a)  # float32
                return a

        y = f(torch.rand(4, 4))
        reveal(y)  # float16
        with torch.autocast("cuda", dtype=torch.float16):
            z = Op.apply(torch.rand(4, 4))
        """
    )


def test_operators_that_cuda_lifts_and_npu_does_not() -> None:
    text = """
        x = torch.rand(1, 1, 4, 4)
        with torch.autocast("cuda", dtype=torch.float16):
            a = F.interpolate(x @ x, scale_factor=2)
            reveal(a)  # {}
            b = F.rms_norm(x @ x, (4,))
            reveal(b)  # {}
        """
    check(text.format("float32", "float32"), backend="cuda")
    check(text.format("float32", "float16"), backend="cuda", torch=(2, 11))
    check(text.format("float16", "float16"), backend="npu")


MODEL = """
class Block(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.norm = nn.LayerNorm(size)
        self.layers = nn.Sequential(nn.Linear(size, size), nn.GELU(), nn.Linear(size, size))
        self.scale = nn.Parameter(torch.ones(size))
        self.register_buffer("table", torch.rand(size))
        self.steps = torch.arange(3)
        self.plain = torch.rand(size)

    def forward(self, x):
        h = self.layers(self.norm(x))
        reveal(h)  # {h}
        s = h * self.scale
        reveal(s)  # {s}
        reveal(self.table)  # {table}
        reveal(self.plain)  # float32
        return h


"""


@pytest.mark.parametrize(
    ("use", "h", "s", "table"),
    [
        ("Block(4)(torch.rand(2, 4))", "float32", "float32", "float32"),
        ("Block(4).half()(torch.rand(2, 4).half())", "float16", "float16", "float16"),
        ("block = Block(4)\nblock.half()\nblock(torch.rand(2, 4).half())", "float16", "float16", "float16"),
        (
            "block = Block(4).to('cuda', torch.bfloat16)\nblock(torch.rand(2, 4).bfloat16())",
            *["bfloat16"] * 3,
        ),
        (
            "with torch.autocast('cuda', dtype=torch.float16):\n    Block(4)(torch.rand(2, 4))",
            "float16",
            "float32",
            "float32",
        ),
        ("nn.Sequential(Block(4)).half().float()(torch.rand(2, 4))", *["float32"] * 3),
        ("import copy\ncopy.deepcopy(Block(4).half())(torch.rand(2, 4).half())", *["float16"] * 3),
    ],
)
def test_modules(use: str, h: str, s: str, table: str) -> None:
    check(MODEL.format(h=h, s=s, table=table) + use)


def test_a_module_that_nobody_makes_may_have_been_cast() -> None:
    shrink = "def shrink(block: Block):\n    return block.half()\n"
    own = "    def shrink(self):\n        return self.half()\n\n    def forward"
    text = MODEL.format(h="bfloat16 or float16, perhaps another", s="unknown", table="unknown")
    check(text.replace("    def forward", own) + shrink)


def test_a_part_of_a_module() -> None:
    check(
        """
        net = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
        net[0].half()
        a = net[0](torch.rand(2, 2).half())
        reveal(a)  # float16
        b = net[1](a.float())
        reveal(b)  # float32
        reveal(net[0].weight)  # float16
        """
    )


def test_branches_are_joined_and_known_ones_taken() -> None:
    check(
        """
        def pick(x, flag, half=True):
            if flag:
                x = x.half()
            reveal(x)  # float16 or float32
            y = x.bfloat16() if half else x
            reveal(y)  # bfloat16
            return y

        z = pick(torch.rand(2), input())
        reveal(z)  # bfloat16
        """
    )


def test_tests_of_the_dtype_narrow_it() -> None:
    check(
        """
        def f(flag):
            x = torch.rand(2)
            if flag:
                x = x.half()
            if x.dtype == torch.float16:
                reveal(x)  # float16
            else:
                reveal(x)  # float32
            if x.dtype in (torch.float16, torch.bfloat16):
                x = x.float()
            reveal(x)  # float32

        f(input())
        """
    )


def test_loops_carry_values_round() -> None:
    check(
        """
        total = 0
        for _ in range(10):
            total = total + torch.rand(2).half()
        reveal(total)  # float16
        other = torch.zeros(2)
        while input():
            reveal(other)  # float16 or float32
            other = other.half()
        """
    )


def test_containers() -> None:
    check(
        """
        xs = []
        for _ in range(3):
            xs.append(torch.rand(2).half())
        a = torch.stack(xs)
        reveal(a)  # float16
        outputs = {"logits": a, "loss": a.float().mean()}
        l = outputs["logits"]
        reveal(l)  # float16
        b = outputs["loss"]
        reveal(b)  # float32
        c, (d, e) = a, (a.float(), [a])
        reveal(d)  # float32
        e = e[0]
        reveal(e)  # float16
        f = torch.cat([t.float() for t in xs])
        reveal(f)  # float32
        g, h = torch.rand(4, 2).half().chunk(2)
        reveal(h)  # float16
        """
    )


def test_calls_classes_closures_and_partials() -> None:
    check(
        """
        from dataclasses import dataclass
        from functools import partial

        @dataclass
        class Config:
            dtype: torch.dtype = torch.bfloat16

        class Caster:
            def __init__(self, config):
                self.dtype = config.dtype

            def __call__(self, x):
                return x.to(self.dtype)

        a = Caster(Config())(torch.rand(2))
        reveal(a)  # bfloat16
        b = Caster(Config(dtype=torch.float16))(torch.rand(2))
        reveal(b)  # float16

        def cast(x, dtype):
            return x.to(dtype)

        c = partial(cast, dtype=torch.float16)(torch.rand(2))
        reveal(c)  # float16
        d = (lambda x: x.half())(torch.rand(2))
        reveal(d)  # float16

        def outer():
            kind = torch.float16

            def inner(x):
                return x.to(kind)

            return inner(torch.rand(2))

        e = outer()
        reveal(e)  # float16
        """
    )


def test_models_that_are_not_looked_into() -> None:
    check(
        """
        from somewhere import Model

        def train(model, x):
            with torch.autocast("cuda", dtype=torch.float16):
                out = model(x)
                reveal(out)  # float16, perhaps another
            loss = F.cross_entropy(out, x)
            return loss

        model = Model.from_pretrained("x", torch_dtype=torch.bfloat16)
        out = model(torch.rand(2))
        reveal(out)  # bfloat16, perhaps another
        """
    )


def test_a_function_that_nobody_calls_may_stand_in_a_region() -> None:
    check(
        """
        def scores(x):
            a = x.half()
            reveal(a)  # float16
            b = a.softmax(-1)
            reveal(b)  # float16 or float32
        """
    )


def test_switches_are_tried_on_their_own() -> None:
    text = dedent(
        """
        def main(args, x: torch.Tensor):
            net = nn.Linear(2, 2)
            x = x.float()
            if args.fp16:
                net.half()
                x = x.half()
            y = net(x)
            if args.fp16:
                y = y.float()
            return y.softmax(-1), net(x).softmax(-1)

        main(input(), torch.rand(2, 2))
        """
    )
    model = model_of(source_from_text(HEAD + text, "train.py"), Settings())
    assert isinstance(model, ModuleModel)
    ran = [said(applied.result) for applied in precision_of(model).notes.of("softmax")]
    assert ran == ["float32", "float16 or float32", "float16", "float16 or float32"]


def test_the_default_dtype() -> None:
    check(
        """
        torch.set_default_dtype(torch.bfloat16)
        x = torch.zeros(3)
        reveal(x)  # bfloat16
        y = torch.tensor([1.0, 2.0])
        reveal(y)  # bfloat16
        z = torch.tensor([1, 2])
        reveal(z)  # int64
        """
    )


def test_recursion_ends() -> None:
    check(
        """
        def down(x, n):
            if n == 0:
                return x
            return down(x.half(), n - 1)

        y = down(torch.rand(2), int(input()))
        z = y.float()
        reveal(z)  # float32
        """
    )


def test_dictionaries_that_are_filled_by_name() -> None:
    check(
        """
        kept = {}
        for name, p in nn.Linear(2, 2).half().named_parameters():
            kept[name] = p.data.clone()
        for name in kept:
            x = kept[name]
            reveal(x)  # float16
        """
    )


def test_a_constructor_sets_attributes_through_another_method() -> None:
    check(
        """
        class Meter:
            def __init__(self):
                self.reset()

            def reset(self):
                self.total = 0

            def add(self, x):
                total = self.total + x
                reveal(total)  # float16

        Meter().add(torch.rand(2).half())
        """
    )


def test_what_a_constructor_makes_low_stays_so_where_nobody_makes_the_module() -> None:
    check(
        """
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.low = nn.Linear(2, 2).bfloat16()
                self.wide = nn.Linear(2, 2)

            def forward(self, x):
                first = self.low.weight
                second = self.wide.weight
                reveal(first)  # bfloat16
                reveal(second)  #
                return x.half()
        """
    )


def test_parameters_that_are_replaced_one_by_one() -> None:
    check(
        """
        net = nn.Linear(2, 2).half()
        for p in net.parameters():
            if p.requires_grad:
                p.data = p.data.float()
        w = net.weight
        reveal(w)  # float16 or float32
        """
    )


def test_functions_and_classes_of_other_files(tmp_path: Path) -> None:
    files = {
        "pkg/__init__.py": "",
        "pkg/tools.py": HEAD
        + "EPS = 1e-8\n\n\ndef shrink(x):\n    return helper(x) + EPS\n\n\ndef helper(x):\n    return x.half()\n",
        "pkg/models.py": HEAD
        + "class Net(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        + "        self.fc = nn.Linear(4, 4)\n\n    def forward(self, x):\n        return self.fc(x)\n",
        "train.py": HEAD
        + dedent(
            """\
            from pkg.models import Net
            from pkg.tools import shrink

            a = shrink(torch.rand(2).bfloat16())
            reveal(a)
            net = Net().half()
            b = net(torch.rand(2, 4).half())
            reveal(b)
            with torch.autocast("cuda", dtype=torch.bfloat16):
                c = Net()(torch.rand(2, 4))
                reveal(c)
            """
        ),
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    settings = Settings()
    job = _Job(settings, (), NO_FIX, 1, None)
    project = job.link([_File(str(tmp_path / name), name) for name in files], tmp_path)
    checker = Checker(settings, (), project)
    model = checker.model(source_from_text(files["train.py"], "train.py"))
    assert isinstance(model, ModuleModel)
    notes = precision_of(model, project).notes
    assert list(_revealed(model, notes).values()) == ["float16", "float16", "bfloat16"]


def test_a_file_that_takes_too_many_steps_is_left() -> None:
    text = HEAD + "x = torch.rand(2)\n" + "x = x + x\n" * 50
    model = model_of(source_from_text(text, "train.py"), Settings())
    assert isinstance(model, ModuleModel)
    assert interpret(model.functions, model.classes, Rules(), budget=100).gave_up == 1
    assert interpret(model.functions, model.classes, Rules()).gave_up == 0
