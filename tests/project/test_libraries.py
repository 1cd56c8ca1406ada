"""Classes of libraries whose scaler no code of the run shows."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest

from amplint import check_source, facts
from amplint.config import Settings
from amplint.runner import run


def codes(text: str) -> list[tuple[str, int]]:
    found = check_source(dedent(text), "train.py", select=["AMP2"])
    return [(f.code, f.start.row) for f in found]


@pytest.mark.parametrize("row", facts.table("libraries"), ids=lambda row: row["name"])
def test_what_stands_for_a_library_defines_the_class(row: dict[str, str]) -> None:
    text = facts.library(row["file"])
    compile(text, row["file"], "exec")
    assert f"class {row['definition']}:" in text


NATIVE = """\
    import torch
    from {module} import {name} as NativeScaler

    def train(model, loader, optimizer):
        scaler = NativeScaler()
        for x, y in loader:
            loss = model(x, y)
            optimizer.zero_grad()
            {body}
"""
KINDS = [
    ("timm.utils", "NativeScaler", "need_update"),
    ("util.misc", "NativeScalerWithGradNormCount", "update_grad"),
]


@pytest.mark.parametrize(("module", "name", "last"), KINDS)
def test_a_wrapper_that_does_it_all_is_right(module: str, name: str, last: str) -> None:
    body = "scaler(loss, optimizer, clip_grad=1.0, parameters=model.parameters())"
    assert codes(NATIVE.format(module=module, name=name, body=body)) == []


@pytest.mark.parametrize(("module", "name", "last"), KINDS)
def test_a_clip_behind_its_step(module: str, name: str, last: str) -> None:
    body = """scaler(loss, optimizer)
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)"""
    assert codes(NATIVE.format(module=module, name=name, body=body)) == [("AMP208", 10)]


@pytest.mark.parametrize(("module", "name", "last"), KINDS)
def test_a_plain_step_with_what_it_scaled(module: str, name: str, last: str) -> None:
    body = f"""scaler(loss, optimizer, {last}=False)
            optimizer.step()"""
    assert codes(NATIVE.format(module=module, name=name, body=body)) == [("AMP203", 10)]


def test_a_class_of_the_project_comes_first(tmp_path: Path) -> None:
    body = """scaler(loss, optimizer)
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)"""
    (tmp_path / "util").mkdir()
    (tmp_path / "util/__init__.py").write_text("")
    (tmp_path / "util/misc.py").write_text(
        "class NativeScalerWithGradNormCount:\n    def __call__(self, *a): pass\n"
    )
    text = NATIVE.format(module="util.misc", name="NativeScalerWithGradNormCount", body=body)
    (tmp_path / "train.py").write_text(dedent(text))
    assert run([tmp_path], Settings(select=("AMP2",)), cwd=tmp_path).findings == []


FABRIC = """\
    import torch
    from {module} import Fabric

    def train(model, loader, optimizer):
        fabric = Fabric({options})
        model, optimizer = fabric.setup(model, optimizer)
        for x, y in loader:
            optimizer.zero_grad()
            loss = model(x, y)
            {body}
            optimizer.step()
"""


@pytest.mark.parametrize("module", ["lightning.fabric", "lightning", "lightning_fabric"])
def test_a_clip_past_fabric(module: str) -> None:
    body = """fabric.backward(loss)
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)"""
    assert codes(FABRIC.format(module=module, options='precision="16-mixed"', body=body)) == [("AMP201", 11)]
    assert codes(FABRIC.format(module=module, options='precision="bf16-mixed"', body=body)) == []
    assert codes(FABRIC.format(module=module, options="", body=body)) == []
    own = """fabric.backward(loss)
            fabric.clip_gradients(model, optimizer, max_norm=1.0)"""
    assert codes(FABRIC.format(module=module, options='precision="16-mixed"', body=own)) == []


def test_a_backward_past_fabric() -> None:
    assert codes(
        FABRIC.format(module="lightning", options='precision="16-mixed"', body="loss.backward()")
    ) == [("AMP203", 10)]


DEEPSPEED = """\
    import deepspeed
    import torch

    SETTINGS = {{"train_batch_size": 8, {precision}}}

    def train(model, other, optimizer, loader, args):
        engine, *_ = deepspeed.initialize(model=model, config=SETTINGS)
        for batch in loader:
            loss = engine(batch)
            {body}
            engine.step()
"""
FP16 = '"fp16": {"enabled": True}'
CLIPPED = """engine.{how}
            torch.nn.utils.clip_grad_norm_(engine.parameters(), 1.0)"""


@pytest.mark.parametrize(
    ("precision", "found"),
    [
        (FP16, True),
        ('"fp16": {"enabled": FLAG}', True),
        ('"fp16": {"enabled": False}', False),
        ('"bf16": {"enabled": True}', False),
        ('"bf16": {"enabled": True}, **MORE', False),
    ],
)
def test_an_engine_asks_for_its_methods_where_its_settings_say_float16(precision: str, found: bool) -> None:
    plain = DEEPSPEED.format(precision=precision, body="loss.backward()")
    assert codes(plain) == ([("AMP203", 10)] if found else [])
    for how in ("backward(loss)", "scale(loss).backward()"):
        clipped = DEEPSPEED.format(precision=precision, body=CLIPPED.format(how=how))
        assert codes(clipped) == ([("AMP201", 11)] if found else [])


def test_settings_that_change_later_tell_nothing() -> None:
    changed = 'SETTINGS["fp16"] = {"enabled": args.fp16}\n            loss.backward()'
    assert codes(DEEPSPEED.format(precision=FP16, body=changed)) == []


@pytest.mark.parametrize(
    "body",
    [
        "engine.backward(loss)",
        "engine.scale(loss).backward()",
        "loss = engine.scale(loss)\n            loss.backward()",
        "engine.backward(loss)\n            other(batch).backward()\n            optimizer.step()",
        "engine.backward(loss)\n            other(batch).backward()\n"
        "            torch.nn.utils.clip_grad_norm_(other.parameters(), 1.0)",
    ],
)
def test_an_engine_scales_by_itself(body: str) -> None:
    assert codes(DEEPSPEED.format(precision=FP16, body=body)) == []


def test_an_engine_that_a_function_is_handed_is_no_scaler() -> None:
    text = """\
        def train(engine, loader):
            for batch in loader:
                engine.scale(engine(batch)).backward()
                engine.step()
    """
    assert codes(text) == []


@pytest.mark.parametrize(
    ("options", "found"), [("", True), ("enabled=args.amp", False), ("enabled=False", False)]
)
def test_a_scaler_beside_an_engine(options: str, found: bool) -> None:
    text = DEEPSPEED.format(precision=FP16, body="scaler.scale(loss).backward()").replace(
        "        for batch", f'        scaler = torch.amp.GradScaler("cuda", {options})\n        for batch'
    )
    assert codes(text) == ([("AMP203", 12)] if found else [])


BOOSTER = """\
    import torch
    from colossalai.booster import Booster
    from colossalai.booster.plugin import *
    from colossalai.booster.plugin import GeminiPlugin, TorchDDPPlugin

    def train(model, optimizer, loader, kinds):
        booster = Booster({options})
        model, optimizer, _, loader, _ = booster.boost(model, optimizer, dataloader=loader)
        for batch in loader:
            loss = model(batch)
            {body}
            optimizer.step()
"""


@pytest.mark.parametrize(
    ("options", "found"),
    [
        ('mixed_precision="fp16"', True),
        ('plugin=GeminiPlugin(precision="fp16")', True),
        ('plugin=GeminiPlugin(precision="bf16")', False),
        ("plugin=GeminiPlugin()", False),
        ("plugin=TorchDDPPlugin()", False),
        ("plugin=TorchDDPPlugin(), **kinds", False),
        ('mixed_precision="bf16"', False),
        ("", False),
    ],
)
def test_past_a_booster(options: str, found: bool) -> None:
    assert codes(BOOSTER.format(options=options, body="loss.backward()")) == (
        [("AMP203", 11)] if found else []
    )
    for how in ("booster.backward(loss, optimizer)", "optimizer.backward(loss)"):
        body = f"""{how}
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)"""
        assert codes(BOOSTER.format(options=options, body=body)) == ([("AMP201", 12)] if found else [])
        own = f"{how}\n            optimizer.clip_grad_by_norm(1.0)"
        assert codes(BOOSTER.format(options=options, body=own)) == []


def test_the_engine_of_colossalai_scales_by_itself() -> None:
    text = """\
        import colossalai
        import torch

        def train(model, optimizer, criterion, loader):
            engine, loader, _, _ = colossalai.initialize(model, optimizer, criterion, loader)
            scaler = torch.amp.GradScaler("cuda")
            for x, y in loader:
                engine.zero_grad()
                loss = engine.criterion(engine(x), y)
                {body}
                engine.step()
    """
    assert codes(text.format(body="engine.backward(loss)")) == []
    assert codes(text.format(body="engine.backward(scaler.scale(loss))")) == [("AMP203", 11)]


TRAINER = """\
    import torch
    from transformers import Trainer{more}

    {arguments}

    class Mine({base}):
        def __init__(self, *args):
            super().__init__(*args)
            self.grad_scaler = torch.amp.GradScaler("cuda")

        def training_step(self, model, inputs, num_items_in_batch=None):
            loss = self.compute_loss(model, inputs)
            {body}
            return loss.detach()
"""


def trained(body: str, base: str = "Trainer", more: str = "", arguments: str = "") -> list[tuple[str, int]]:
    return codes(TRAINER.format(body=body, base=base, more=more, arguments=arguments))


def test_a_backward_past_a_trainer() -> None:
    assert trained("loss.backward()") == [("AMP203", 13)]
    assert trained("loss.backward(retain_graph=True)", "Seq2SeqTrainer", ", Seq2SeqTrainer") == [
        ("AMP203", 13)
    ]
    assert trained("torch.autograd.backward(loss)") == [("AMP203", 13)]
    fp16 = "ARGS = TrainingArguments(out, fp16=True, bf16=False)"
    assert trained("loss.backward()", arguments=fp16) == [("AMP203", 13)]
    bf16 = "ARGS = TrainingArguments(out, bf16=True)"
    assert trained("loss.backward()", arguments=bf16) == []
    assert trained("loss.backward()", "Elsewhere") == []


def test_a_scaler_of_ones_own_in_a_trainer() -> None:
    assert trained("self.grad_scaler.scale(loss).backward()") == [("AMP203", 13)]
    stepped = """self.grad_scaler.scale(loss).backward()
            self.grad_scaler.step(self.optimizer)
            self.grad_scaler.update()"""
    assert trained(stepped) == []


@pytest.mark.parametrize(
    "body",
    [
        "self.accelerator.backward(loss)",
        "self.accelerator.scaler.scale(loss).backward()",
        "(self.accelerator.backward(loss) if self.args.fp16 else loss.backward())",
        "loss.backward(), self.my_optimizer.step()",
        "self.deepspeed.backward(loss) if self.deepspeed else loss.backward()",
    ],
)
def test_a_trainer_that_does_it_right_or_all_by_itself(body: str) -> None:
    assert trained(body) == []


def test_a_clip_in_a_trainer() -> None:
    clip = "torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)"
    assert trained(f"self.accelerator.backward(loss); {clip}") == [("AMP201", 13)]
    unscaled = f"self.accelerator.backward(loss); self.accelerator.unscale_gradients(); {clip}"
    assert trained(unscaled) == []
    assert trained(f"self.accelerator.backward(loss)\n            if not self.args.fp16: {clip}") == []


def test_one_function_scales_the_loss_of_the_framework_and_leaves_the_other_plain() -> None:
    text = """\
        from accelerate import Accelerator

        def train(model, optimizer, loader, plain):
            accelerator = Accelerator(mixed_precision="fp16")
            model, optimizer = accelerator.prepare(model, optimizer)
            for x in loader:
                if plain:
                    model(x).backward()
                else:
                    accelerator.backward(model(x))
                optimizer.step()
    """
    assert codes(text) == []
