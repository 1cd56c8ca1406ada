"""What the shim promises: torch.cuda.amp's signatures on any accelerator, and AMP off without one."""

from __future__ import annotations

import ast
import copy
import inspect
import os
import pickle
import subprocess
import sys
import textwrap
import threading
import types
import typing
import warnings
from abc import ABC

import pytest
import torch

from amplint import runtime as shim

from .conftest import SHIM

has_device_scaler = pytest.mark.skipif(not hasattr(torch.amp, "GradScaler"), reason="needs torch 2.3")
has_custom_fwd = pytest.mark.skipif(not hasattr(torch.amp, "custom_fwd"), reason="needs torch 2.4")


class CountingScaler(shim.GradScaler):
    """A subclass as projects write them: other arguments, an attribute set first, a method extended."""

    def __init__(self, start: float, **kwargs):
        self.name = "mine"
        super().__init__(init_scale=start, **kwargs)
        self.scaled = 0

    def scale(self, outputs):
        self.scaled += 1
        return super().scale(outputs)


@shim.custom_fwd
def module_level_forward(ctx, x):
    return x


def parameters(function) -> list[tuple]:
    return [(p.name, p.kind, p.default) for p in inspect.signature(function).parameters.values()]


def run_python(code: str, *, path=()) -> subprocess.CompletedProcess:
    env = dict(os.environ, PYTHONPATH=os.pathsep.join([*map(str, path), str(SHIM.parents[2])]))
    command = [sys.executable, "-c", textwrap.dedent(code)]
    return subprocess.run(command, env=env, capture_output=True, text=True, check=False)


def train_one_step(scaler, gradient_factor: float = 1.0) -> float:
    """Step a weight of 1.0 with learning rate 1 and a gradient of `gradient_factor`; return the weight."""
    weight = torch.nn.Parameter(torch.tensor([1.0]))
    optimizer = torch.optim.SGD([weight], lr=1.0)
    scaler.scale(weight * gradient_factor).sum().backward()
    scaler.step(optimizer)
    scaler.update()
    return weight.item()


# ------------------------------------------------------------------------------------------------ the file


def test_the_file_parses_under_the_grammar_of_python_3_8():
    ast.parse(SHIM.read_text(encoding="utf-8"), feature_version=(3, 8))


def test_the_file_imports_nothing_but_torch_and_the_standard_library():
    imported = set()
    for node in ast.walk(ast.parse(SHIM.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            imported |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0
            imported.add(node.module.partition(".")[0])
    standard = {"contextlib", "functools", "importlib", "os", "sys", "types", "typing", "warnings"}
    assert imported <= standard | {"torch"}


def test_exactly_the_promised_names_are_exported():
    amp = "GradScaler autocast custom_bwd custom_fwd get_autocast_dtype is_autocast_enabled"
    devices = "current_device device device_count device_type set_device synchronize"
    memory = "empty_cache max_memory_allocated memory_allocated pin_memory reset_peak_memory_stats"
    others = (
        "Stream current_stream dist_backend get_rng_state manual_seed manual_seed_all set_rng_state stream"
    )
    promised = " ".join((amp, devices, memory, others)).split()
    assert shim.__all__ == sorted(promised)
    assert all(getattr(shim, name).__doc__ for name in shim.__all__)


def test_a_copy_under_another_name_works_without_the_package(tmp_path):
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "_amp.py").write_bytes(SHIM.read_bytes())
    code = """
        import pickle, sys
        sys.path.pop(0)
        from project import _amp
        assert not any(name.partition(".")[0] == "amplint" for name in sys.modules)
        with _amp.autocast(enabled=False):
            pass
        assert type(pickle.loads(pickle.dumps(_amp.GradScaler(enabled=False)))) is _amp.GradScaler
    """
    result = run_python(code, path=[tmp_path])
    assert result.returncode == 0, result.stderr


def test_importing_the_shim_initialises_no_device_and_imports_no_torch_npu(tmp_path):
    (tmp_path / "torch_npu.py").write_text("raise SystemExit('torch_npu was imported')")
    code = """
        import sys, torch
        before = torch.cuda.is_initialized()
        import amplint.runtime as shim
        assert not before and not torch.cuda.is_initialized()
        assert "torch_npu" not in sys.modules and "torch._dynamo" not in sys.modules

        class Double(torch.autograd.Function):
            @staticmethod
            @shim.custom_fwd
            def forward(ctx, x):
                return 2 * x

            @staticmethod
            @shim.custom_bwd
            def backward(ctx, g):
                return 2 * g

        assert "torch_npu" not in sys.modules
        print("done")
    """
    result = run_python(code, path=[tmp_path])
    assert (result.returncode, result.stdout) == (0, "done\n"), result.stderr


def test_an_installed_torch_npu_is_imported_when_the_device_is_asked_for(tmp_path):
    (tmp_path / "torch_npu.py").write_text(
        "import torch, types\ntorch.npu = types.SimpleNamespace(is_available=lambda: True)\n"
    )
    code = """
        import torch
        torch.cuda.is_available = lambda: False
        import amplint.runtime as shim
        assert not hasattr(torch, "npu")
        print(shim.device_type())
    """
    result = run_python(code, path=[tmp_path])
    assert (result.returncode, result.stdout) == (0, "npu\n"), result.stderr


# ---------------------------------------------------------------------------------------------- signatures


def test_autocast_has_the_signature_of_torch_cuda_amp():
    assert parameters(shim.autocast) == parameters(torch.cuda.amp.autocast)


def test_grad_scaler_has_the_signature_of_torch_cuda_amp():
    assert parameters(shim.GradScaler) == parameters(torch.cuda.amp.GradScaler)


def test_custom_fwd_has_the_signature_of_torch_cuda_amp():
    assert parameters(shim.custom_fwd) == parameters(torch.cuda.amp.custom_fwd)


def test_custom_bwd_differs_from_torch_cuda_amp_only_in_that_its_argument_may_be_left_out():
    (name, kind, _), *rest = parameters(torch.cuda.amp.custom_bwd)
    assert parameters(shim.custom_bwd) == [(name, kind, None), *rest]


@pytest.mark.parametrize("name", shim.__all__)
def test_every_parameter_and_result_is_annotated(name):
    public = getattr(shim, name)
    functions = (
        [public]
        if inspect.isfunction(public)
        else [f for f in vars(public).values() if inspect.isfunction(f)]
    )
    for function in functions:
        hints = typing.get_type_hints(function)
        assert "return" in hints
        assert set(inspect.signature(function).parameters) - {"self"} <= set(hints)


# ---------------------------------------------------------------------------------------------- the device


def test_without_an_accelerator_amp_is_for_cuda_and_tensors_go_to_the_cpu(no_accelerator):
    assert shim.device_type() == "cuda"
    assert shim.device() == torch.device("cpu")


def test_the_accelerator_that_pytorch_reports_is_the_device(accelerator):
    def current_accelerator(check_available=False):
        assert check_available
        return torch.device("xpu")

    accelerator(current_accelerator)
    assert (shim.device_type(), shim.device()) == ("xpu", torch.device("xpu"))


def test_in_2_6_the_accelerator_pytorch_was_built_for_counts_only_if_it_is_usable(
    no_accelerator, accelerator, monkeypatch
):
    accelerator(lambda: torch.device("cuda"))
    usable = types.SimpleNamespace(is_available=lambda: False)
    monkeypatch.setattr(torch, "get_device_module", lambda device: usable, raising=False)
    assert shim.device() == torch.device("cpu")
    usable.is_available = lambda: True
    assert shim.device() == torch.device("cuda")


def test_in_2_6_a_build_without_an_accelerator_that_raises_is_one_without_accelerator(
    no_accelerator, accelerator
):
    def current_accelerator():
        raise RuntimeError("Please register an accelerator")

    accelerator(current_accelerator)
    assert (shim.device_type(), shim.device()) == ("cuda", torch.device("cpu"))


@pytest.mark.parametrize("answer", [None, torch.device("cpu")])
def test_in_2_6_none_and_the_cpu_are_no_accelerators(no_accelerator, accelerator, answer):
    accelerator(lambda: answer)
    assert (shim.device_type(), shim.device()) == ("cuda", torch.device("cpu"))


def test_before_2_6_an_available_cuda_is_found(no_accelerator, accelerator, monkeypatch):
    accelerator(None)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert (shim.device_type(), shim.device()) == ("cuda", torch.device("cuda"))


def test_before_2_6_an_available_npu_is_found(npu):
    assert shim.device_type() == "npu"


def test_an_npu_goes_before_cuda_so_that_transfer_to_npu_changes_nothing(npu, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert shim.device_type() == "npu"


def test_torch_npu_without_an_npu_in_the_machine_is_no_accelerator(npu):
    npu.available = False
    assert (shim.device_type(), shim.device()) == ("cuda", torch.device("cpu"))


def test_a_torch_npu_that_pytorch_did_not_load_by_itself_is_found_after_2_6_too(npu, accelerator):
    accelerator(lambda check_available=False: None)
    assert shim.device_type() == "npu"


def test_a_broken_torch_npu_is_reported_once_and_not_used(no_accelerator, load_shim, monkeypatch):
    fresh = load_shim()
    monkeypatch.delitem(sys.modules, "torch_npu")

    def import_module(name):
        raise OSError("libascendcl.so: cannot open shared object file")

    monkeypatch.setattr(fresh.importlib, "import_module", import_module)
    with pytest.warns(UserWarning, match=r"torch_npu .* libascendcl\.so"):
        assert fresh.device_type() == "cuda"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert fresh.device() == torch.device("cpu")


def test_a_torch_npu_that_misses_another_package_is_reported_too(no_accelerator, load_shim, monkeypatch):
    fresh = load_shim()
    monkeypatch.delitem(sys.modules, "torch_npu")

    def import_module(name):
        raise ModuleNotFoundError("No module named 'yaml'", name="yaml")

    monkeypatch.setattr(fresh.importlib, "import_module", import_module)
    with pytest.warns(UserWarning, match="yaml"):
        fresh.device_type()


def test_a_machine_without_torch_npu_hears_nothing_about_it(no_accelerator, load_shim, recwarn):
    load_shim().device_type()
    assert not recwarn.list


# ------------------------------------------------------------------------------------------------ autocast


def test_without_an_accelerator_a_region_leaves_float32_alone(no_accelerator):
    a = torch.ones(2, 2)
    with pytest.warns(UserWarning, match="CUDA is not available"):
        region = shim.autocast()
    with region:
        assert torch.mm(a, a).dtype == torch.float32
        assert torch.nn.functional.linear(a, a).dtype == torch.float32
        assert not shim.is_autocast_enabled()


def test_without_an_accelerator_an_enclosing_cpu_region_stays_in_force(no_accelerator):
    a = torch.ones(2, 2)
    with torch.autocast("cpu", dtype=torch.bfloat16), shim.autocast(enabled=False):
        assert torch.mm(a, a).dtype == torch.bfloat16


def test_a_region_gives_no_deprecation_warning(no_accelerator):
    with warnings.catch_warnings():
        warnings.simplefilter("error", FutureWarning)
        warnings.simplefilter("ignore", UserWarning)
        shim.autocast()
        shim.GradScaler()
        shim.custom_fwd(lambda ctx: None)
        shim.custom_bwd(lambda ctx: None)


def test_a_region_that_is_not_enabled_is_silent_without_an_accelerator(no_accelerator, recwarn):
    with shim.autocast(False):
        pass
    assert not recwarn.list


def test_on_an_accelerator_a_region_casts_to_the_dtype_given(on_cpu):
    a = torch.ones(2, 2)
    with shim.autocast(dtype=torch.bfloat16):
        assert torch.mm(a, a).dtype == torch.bfloat16
    assert torch.mm(a, a).dtype == torch.float32


def test_the_default_dtype_is_float16_whatever_the_default_of_the_device(on_cpu):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # older releases disable float16 on the CPU
        assert shim.autocast().fast_dtype == torch.float16


def test_positional_arguments_keep_the_order_of_torch_cuda_amp(on_cpu):
    a = torch.ones(2, 2)
    with shim.autocast(True, torch.bfloat16, False):
        assert torch.mm(a, a).dtype == torch.bfloat16
        assert not torch.is_autocast_cache_enabled()
    with shim.autocast(False, torch.bfloat16):
        assert torch.mm(a, a).dtype == torch.float32


def test_a_disabled_region_inside_an_enabled_one_is_float32(on_cpu):
    a = torch.ones(2, 2)
    with shim.autocast(dtype=torch.bfloat16):
        with shim.autocast(enabled=False, dtype=torch.bfloat16):
            assert torch.mm(a, a).dtype == torch.float32
        assert torch.mm(a, a).dtype == torch.bfloat16


def test_a_region_ends_when_an_exception_leaves_it(on_cpu):
    with pytest.raises(ZeroDivisionError), shim.autocast(dtype=torch.bfloat16):
        raise ZeroDivisionError
    a = torch.ones(2, 2)
    assert torch.mm(a, a).dtype == torch.float32


def test_as_a_decorator_the_region_is_entered_at_each_call(on_cpu):
    class Model(torch.nn.Module):
        @shim.autocast(dtype=torch.bfloat16)
        def forward(self, x):
            """Multiply."""
            return torch.mm(x, x)

    model = Model()
    assert [model(torch.ones(2, 2)).dtype for _ in range(2)] == [torch.bfloat16, torch.bfloat16]
    assert (Model.forward.__name__, Model.forward.__doc__) == ("forward", "Multiply.")


def test_a_region_is_a_torch_autocast(no_accelerator):
    assert issubclass(shim.autocast, torch.autocast)
    assert isinstance(shim.autocast(enabled=False), torch.autocast)
    assert isinstance(shim.autocast(enabled=False), shim.autocast)


def test_autocast_can_be_subclassed(on_cpu):
    class BFloat16(shim.autocast):
        def __init__(self, enabled=True):
            super().__init__(enabled, torch.bfloat16)

    a = torch.ones(2, 2)
    with BFloat16():
        assert torch.mm(a, a).dtype == torch.bfloat16


def test_the_device_is_decided_when_the_region_is_made(on_cpu, monkeypatch):
    region = shim.autocast(dtype=torch.bfloat16)
    monkeypatch.setattr(shim, "device_type", lambda: "cuda")
    a = torch.ones(2, 2)
    with region:
        assert torch.mm(a, a).dtype == torch.bfloat16


# --------------------------------------------------------------------------------------- state of autocast


@pytest.mark.skipif(not hasattr(torch, "get_autocast_dtype"), reason="needs torch 2.4")
def test_the_state_of_autocast_is_that_of_the_accelerator(on_cpu):
    assert not shim.is_autocast_enabled()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert shim.is_autocast_enabled()
        assert shim.get_autocast_dtype() == torch.bfloat16
        assert not torch.is_autocast_enabled()  # the form without argument asks about CUDA
    assert not shim.is_autocast_enabled()


def test_without_an_accelerator_the_state_is_that_of_cuda(no_accelerator):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert shim.is_autocast_enabled() is False
        assert shim.get_autocast_dtype() == torch.float16


def test_before_2_4_the_state_comes_from_the_npu_module(npu, monkeypatch):
    monkeypatch.delattr(torch, "get_autocast_dtype", raising=False)
    assert shim.is_autocast_enabled() is False
    npu.autocast, npu.dtype = True, torch.bfloat16
    assert shim.is_autocast_enabled() is True
    assert shim.get_autocast_dtype() == torch.bfloat16


def test_before_2_4_the_state_of_cuda_comes_from_its_own_functions(no_accelerator, monkeypatch):
    monkeypatch.delattr(torch, "get_autocast_dtype", raising=False)
    monkeypatch.setattr(torch, "is_autocast_enabled", lambda: True)
    monkeypatch.setattr(torch, "get_autocast_gpu_dtype", lambda: torch.bfloat16)
    assert shim.is_autocast_enabled() is True
    assert shim.get_autocast_dtype() == torch.bfloat16


# ---------------------------------------------------------------------------------------------- GradScaler


def test_without_an_accelerator_the_scaler_is_disabled_and_scale_is_the_identity(no_accelerator):
    with pytest.warns(UserWarning, match="CUDA is not available"):
        scaler = shim.GradScaler()
    loss = torch.ones(3)
    assert not scaler.is_enabled()
    assert scaler.scale(loss) is loss
    assert scaler.get_scale() == 1.0
    assert scaler.state_dict() == {}


def test_without_an_accelerator_training_runs_unscaled(no_accelerator):
    assert train_one_step(shim.GradScaler(enabled=False)) == 0.0


@has_device_scaler
def test_the_scaler_is_one_of_torch_amp(on_cpu):
    assert issubclass(shim.GradScaler, torch.amp.GradScaler)
    assert isinstance(shim.GradScaler(), torch.amp.GradScaler)
    assert isinstance(shim.GradScaler(), shim.GradScaler)


@has_device_scaler
def test_positional_arguments_of_the_scaler_keep_the_order_of_torch_cuda_amp(on_cpu):
    scaler = shim.GradScaler(8.0, 3.0, 0.25, 7, True)
    assert scaler.get_scale() == 8.0
    assert scaler.get_growth_factor() == 3.0
    assert scaler.get_backoff_factor() == 0.25
    assert scaler.get_growth_interval() == 7
    assert not shim.GradScaler(8.0, 3.0, 0.25, 7, False).is_enabled()


@has_device_scaler
def test_a_finite_step_is_unscaled_before_it_is_taken(on_cpu):
    scaler = shim.GradScaler(init_scale=1024.0)
    assert scaler.scale(torch.ones(1)).item() == 1024.0
    assert train_one_step(scaler) == 0.0


@has_device_scaler
def test_an_overflow_skips_the_step_and_lowers_the_scale(on_cpu):
    scaler = shim.GradScaler(init_scale=1024.0)
    assert train_one_step(scaler, float("inf")) == 1.0
    assert scaler.get_scale() == 512.0


@has_device_scaler
def test_the_scale_grows_after_the_interval(on_cpu):
    scaler = shim.GradScaler(init_scale=4.0, growth_factor=8.0, growth_interval=2)
    scales = []
    for _ in range(4):
        train_one_step(scaler)
        scales.append(scaler.get_scale())
    assert scales == [4.0, 32.0, 32.0, 256.0]


@has_device_scaler
@pytest.mark.parametrize("wrong", [{"growth_factor": 1.0}, {"backoff_factor": 1.0}])
def test_factors_that_would_not_adapt_the_scale_are_refused(on_cpu, wrong):
    with pytest.raises(AssertionError):
        shim.GradScaler(**wrong)


@has_device_scaler
def test_a_subclass_with_other_arguments_works(on_cpu):
    scaler = CountingScaler(16.0, growth_interval=3)
    assert train_one_step(scaler) == 0.0
    assert (scaler.name, scaler.scaled, scaler.get_growth_interval()) == ("mine", 1, 3)


def test_the_class_can_be_used_in_annotations():
    def step(scaler):
        pass

    step.__annotations__ = {"scaler": "typing.List[shim.GradScaler]", "region": "shim.autocast"}
    hints = typing.get_type_hints(step)
    assert (typing.get_args(hints["scaler"]), hints["region"]) == ((shim.GradScaler,), shim.autocast)


@has_device_scaler
def test_the_state_survives_a_round_trip(on_cpu):
    saved = shim.GradScaler(init_scale=64.0, growth_interval=5)
    train_one_step(saved)
    loaded = shim.GradScaler()
    loaded.load_state_dict(saved.state_dict())
    assert loaded.state_dict() == saved.state_dict()
    assert loaded.state_dict()["_growth_tracker"] == 1


@has_device_scaler
def test_the_state_is_the_one_torch_amp_saves_and_loads(on_cpu):
    plain = torch.amp.GradScaler("cpu", init_scale=32.0)
    ours = shim.GradScaler()
    ours.load_state_dict(plain.state_dict())
    assert ours.state_dict() == plain.state_dict()
    plain.load_state_dict(ours.state_dict())


@has_device_scaler
def test_the_empty_state_of_a_disabled_scaler_is_refused_by_an_enabled_one(on_cpu):
    with pytest.raises(RuntimeError, match="empty"):
        shim.GradScaler().load_state_dict(shim.GradScaler(enabled=False).state_dict())


def test_loading_into_a_disabled_scaler_does_nothing(no_accelerator):
    scaler = shim.GradScaler(enabled=False)
    scaler.load_state_dict({"scale": 2.0})
    assert scaler.get_scale() == 1.0


def test_loading_does_not_change_the_state_that_was_passed(no_accelerator):
    state = {"scale": 2.0}
    shim.GradScaler(enabled=False).load_state_dict(state)
    assert state == {"scale": 2.0}


@has_device_scaler
@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda scaler: pickle.loads(pickle.dumps(scaler))])
def test_a_pickled_or_copied_scaler_goes_on_where_the_first_one_was(on_cpu, duplicate):
    scaler = CountingScaler(16.0, growth_interval=2)
    train_one_step(scaler)
    twin = duplicate(scaler)
    assert type(twin) is CountingScaler
    assert (twin.name, twin.scaled, twin.state_dict()) == ("mine", 1, scaler.state_dict())
    assert train_one_step(twin) == 0.0
    assert twin.get_scale() == 32.0


def test_a_pickled_disabled_scaler_stays_disabled(no_accelerator):
    assert not pickle.loads(pickle.dumps(shim.GradScaler(enabled=False))).is_enabled()


@has_device_scaler
def test_unpickling_an_enabled_scaler_without_an_accelerator_warns_of_nothing(on_cpu, monkeypatch, recwarn):
    pickled = pickle.dumps(shim.GradScaler(init_scale=4.0))
    monkeypatch.setattr(shim, "device_type", lambda: "cuda")
    monkeypatch.setattr(shim, "_available_accelerator", lambda: None)
    scaler = pickle.loads(pickled)
    assert scaler.is_enabled() and scaler.get_scale() == 4.0  # as torch.cuda.amp
    assert not recwarn.list


# ------------------------------------------------------------------------------------- GradScaler on an NPU


@has_device_scaler
def test_on_an_npu_with_inf_and_nan_pytorchs_scaler_is_used(npu):
    scaler = shim.GradScaler(8.0)
    assert type(scaler) is shim.GradScaler
    assert (scaler._device, scaler.is_enabled(), scaler.get_scale()) == ("npu", True, 8.0)


@has_device_scaler
def test_a_torch_npu_that_cannot_say_whether_it_has_inf_gets_pytorchs_scaler(npu, monkeypatch):
    monkeypatch.setattr(torch.npu, "utils", types.SimpleNamespace())
    assert type(shim.GradScaler()) is shim.GradScaler


def test_on_an_npu_without_inf_and_nan_the_scaler_of_torch_npu_is_used(npu):
    npu.inf_nan = False
    scaler = shim.GradScaler(8.0)
    assert isinstance(scaler, npu.scaler) and isinstance(scaler, shim.GradScaler)
    assert scaler.scale(torch.ones(1)).item() == 8.0
    assert scaler.cleared_flags == 1


def test_the_fifth_argument_is_enabled_and_not_dynamic_on_an_npu_without_inf_and_nan(npu):
    npu.inf_nan = False
    scaler = shim.GradScaler(8.0, 3.0, 0.25, 7, True)
    assert scaler._dynamic is True
    assert (scaler._growth_factor, scaler._backoff_factor, scaler._growth_interval) == (3.0, 0.25, 7)
    assert not shim.GradScaler(8.0, 3.0, 0.25, 7, False).is_enabled()


@has_device_scaler
def test_a_disabled_scaler_does_not_ask_the_chip(npu):
    shim.GradScaler(enabled=False)
    assert npu.asked == 0
    shim.GradScaler()
    assert npu.asked == 1


@has_device_scaler
def test_a_state_saved_on_cuda_loads_into_the_scaler_of_torch_npu(npu):
    npu.inf_nan = False
    saved_on_cuda = torch.amp.GradScaler("cpu", init_scale=32.0).state_dict()
    assert "dynamic" not in saved_on_cuda
    with pytest.raises(KeyError):
        npu.scaler().load_state_dict(saved_on_cuda)
    scaler = shim.GradScaler()
    scaler.load_state_dict(saved_on_cuda)
    assert (scaler.get_scale(), scaler._dynamic) == (32.0, True)


def test_a_static_scale_saved_by_torch_npu_stays_static(npu):
    npu.inf_nan = False
    saved = npu.scaler(init_scale=32.0, dynamic=False).state_dict()
    scaler = shim.GradScaler()
    scaler.load_state_dict(saved)
    assert scaler._dynamic is False


@has_device_scaler
def test_a_state_saved_by_torch_npu_loads_on_cuda(npu):
    npu.inf_nan = False
    saved = shim.GradScaler(init_scale=32.0).state_dict()
    assert saved["dynamic"] is True
    npu.inf_nan = True
    scaler = shim.GradScaler()
    scaler.load_state_dict(saved)
    assert scaler.get_scale() == 32.0


def test_an_empty_state_stays_an_error_on_an_npu_without_inf_and_nan(npu):
    npu.inf_nan = False
    with pytest.raises(RuntimeError, match="empty"):
        shim.GradScaler().load_state_dict({})


def test_a_subclass_stands_on_the_scaler_of_torch_npu(npu):
    npu.inf_nan = False
    scaler = CountingScaler(16.0)
    assert isinstance(scaler, CountingScaler) and isinstance(scaler, npu.scaler)
    assert scaler.scale(torch.ones(1)).item() == 16.0
    assert (scaler.name, scaler.scaled, scaler.cleared_flags) == ("mine", 1, 1)
    assert type(scaler).__name__ == "CountingScaler" and type(scaler).__module__ == __name__


def test_a_subclass_with_a_metaclass_stands_on_the_scaler_of_torch_npu(npu):
    class Abstract(shim.GradScaler, ABC):
        pass

    npu.inf_nan = False
    assert isinstance(Abstract(), npu.scaler)


def test_a_subclass_that_already_is_a_scaler_of_torch_npu_keeps_its_class(npu):
    class Both(shim.GradScaler, npu.scaler):
        pass

    npu.inf_nan = False
    scaler = Both(8.0)
    assert type(scaler) is Both
    assert scaler.scale(torch.ones(1)).item() == 8.0


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda scaler: pickle.loads(pickle.dumps(scaler))])
def test_a_scaler_of_torch_npu_can_be_pickled_and_copied(npu, duplicate):
    npu.inf_nan = False
    scaler = CountingScaler(16.0)
    scaler.scale(torch.ones(1))
    twin = duplicate(scaler)
    assert isinstance(twin, CountingScaler) and isinstance(twin, npu.scaler)
    assert (twin.scaled, twin.cleared_flags, twin._init_scale) == (1, 1, 16.0)


@has_device_scaler
def test_a_scaler_pickled_on_cuda_becomes_one_of_torch_npu_where_the_chip_needs_it(npu):
    pickled = pickle.dumps(CountingScaler(16.0))
    npu.inf_nan = False
    scaler = pickle.loads(pickled)
    assert isinstance(scaler, npu.scaler) and isinstance(scaler, CountingScaler)
    assert scaler.scale(torch.ones(1)).item() == 16.0


@has_device_scaler
def test_a_scaler_pickled_on_an_npu_without_inf_becomes_pytorchs_elsewhere(npu):
    npu.inf_nan = False
    pickled = pickle.dumps(CountingScaler(16.0))
    npu.inf_nan = True
    scaler = pickle.loads(pickled)
    assert type(scaler) is CountingScaler
    assert scaler._device == "npu" and scaler.get_scale() == 16.0


# ---------------------------------------------------------------------------- GradScaler, releases before 2.3


@pytest.fixture
def before_2_3(monkeypatch, load_shim):
    """The shim as loaded by a PyTorch whose only GradScaler is that of torch.cuda.amp."""
    monkeypatch.delattr(torch.amp, "GradScaler", raising=False)

    class CudaScaler:
        def __init__(
            self,
            init_scale=2.0**16,
            growth_factor=2.0,
            backoff_factor=0.5,
            growth_interval=2000,
            enabled=True,
        ):
            self.arguments = (init_scale, growth_factor, backoff_factor, growth_interval, enabled)

    monkeypatch.setattr(torch.cuda.amp, "GradScaler", CudaScaler)
    return load_shim()


def test_before_2_3_the_scaler_is_the_one_of_torch_cuda_amp(before_2_3, no_accelerator):
    assert issubclass(before_2_3.GradScaler, torch.cuda.amp.GradScaler)
    assert before_2_3.GradScaler(8.0, 3.0, 0.25, 7, False).arguments == (8.0, 3.0, 0.25, 7, False)


def test_before_2_3_an_npu_gets_the_scaler_of_torch_npu_even_if_it_has_inf_and_nan(
    before_2_3, npu, monkeypatch
):
    class OldNpuScaler(torch.cuda.amp.GradScaler):
        def __init__(
            self, init_scale, growth_factor, backoff_factor, growth_interval, dynamic=True, enabled=True
        ):
            self.arguments = (init_scale, growth_factor, backoff_factor, growth_interval, dynamic, enabled)

    monkeypatch.setattr(torch.npu.amp, "GradScaler", OldNpuScaler)
    scaler = before_2_3.GradScaler(8.0, 3.0, 0.25, 7)
    assert isinstance(scaler, OldNpuScaler) and isinstance(scaler, before_2_3.GradScaler)
    assert scaler.arguments == (8.0, 3.0, 0.25, 7, True, True)


def test_before_2_3_a_disabled_scaler_on_an_npu_needs_no_torch_npu(before_2_3, npu):
    assert type(before_2_3.GradScaler(enabled=False)) is before_2_3.GradScaler


# ---------------------------------------------------------------------------------- custom autograd functions


def make_function(amp, fwd_decorator, bwd_decorator):
    """An autograd function that notes what it was given, and whether autocast was on in either pass."""
    seen: dict = {}

    class Product(torch.autograd.Function):
        @staticmethod
        @fwd_decorator
        def forward(ctx, a, b):
            seen["forward"] = (a.dtype, b.dtype, torch.mm(torch.ones(1, 1), torch.ones(1, 1)).dtype)
            ctx.save_for_backward(a, b)
            return torch.mm(a, b)

        @staticmethod
        @bwd_decorator
        def backward(ctx, grad):
            a, b = ctx.saved_tensors
            seen["backward"] = torch.mm(torch.ones(1, 1), torch.ones(1, 1)).dtype
            seen["thread"] = threading.current_thread().name
            return torch.mm(grad, b.t()), torch.mm(a.t(), grad)

    return Product, seen


def run(function, region) -> torch.dtype:
    a = torch.ones(2, 2, requires_grad=True)
    b = torch.ones(2, 2, requires_grad=True)
    with region:
        out = function.apply(a, b)
    out.sum().backward()
    assert a.grad.tolist() == b.grad.tolist() == [[2.0, 2.0], [2.0, 2.0]]
    return out.dtype


@pytest.fixture(params=["torch.amp.custom_fwd", "without it, as before 2.4"])
def either_ladder(request, on_cpu, monkeypatch):
    """Both implementations of custom_fwd, on the CPU as accelerator."""
    if request.param == "torch.amp.custom_fwd":
        if not hasattr(torch.amp, "custom_fwd"):
            pytest.skip("needs torch 2.4")
    else:
        monkeypatch.delattr(torch.amp, "custom_fwd", raising=False)
        monkeypatch.delattr(torch.amp, "custom_bwd", raising=False)
        if not hasattr(torch, "get_autocast_dtype"):
            monkeypatch.setattr(shim, "is_autocast_enabled", torch.is_autocast_cpu_enabled)
            monkeypatch.setattr(shim, "get_autocast_dtype", torch.get_autocast_cpu_dtype)


def cpu_region(enabled=True):
    return torch.autocast("cpu", dtype=torch.bfloat16, enabled=enabled)


@pytest.mark.parametrize("bwd_decorator", [shim.custom_bwd, shim.custom_bwd()], ids=["bare", "called"])
@pytest.mark.parametrize("fwd_decorator", [shim.custom_fwd, shim.custom_fwd()], ids=["bare", "called"])
def test_backward_runs_with_the_autocast_state_of_forward(either_ladder, fwd_decorator, bwd_decorator):
    function, seen = make_function(shim, fwd_decorator, bwd_decorator)
    assert run(function, cpu_region()) == torch.bfloat16
    assert seen["forward"] == (torch.float32, torch.float32, torch.bfloat16)
    assert seen["backward"] == torch.bfloat16


def test_outside_a_region_both_passes_are_float32(either_ladder):
    function, seen = make_function(shim, shim.custom_fwd(cast_inputs=torch.bfloat16), shim.custom_bwd)
    assert run(function, cpu_region(enabled=False)) == torch.float32
    assert seen["forward"] == (torch.float32,) * 3
    assert seen["backward"] == torch.float32


def test_cast_inputs_casts_and_switches_autocast_off_in_both_passes(either_ladder):
    function, seen = make_function(shim, shim.custom_fwd(cast_inputs=torch.bfloat16), shim.custom_bwd)
    assert run(function, cpu_region()) == torch.bfloat16
    assert seen["forward"] == (torch.bfloat16, torch.bfloat16, torch.float32)
    assert seen["backward"] == torch.float32


def test_cast_inputs_reaches_into_containers_and_spares_what_is_not_a_low_precision_candidate(either_ladder):
    received = {}

    @shim.custom_fwd(cast_inputs=torch.bfloat16)
    def forward(ctx, nested, text, *, keyword):
        received.update(nested=nested, text=text, keyword=keyword)

    floats, doubles, ints = (
        torch.ones(1),
        torch.ones(1, dtype=torch.float64),
        torch.ones(1, dtype=torch.int64),
    )
    with cpu_region():
        forward(types.SimpleNamespace(), [floats, (doubles, {"k": ints})], "text", keyword=floats)
    low, (double, named) = received["nested"]
    assert low.dtype == torch.bfloat16 and received["keyword"].dtype == torch.bfloat16
    assert double is doubles and named["k"] is ints and received["text"] == "text"


def test_cast_inputs_spares_tensors_of_other_devices(either_ladder):
    @shim.custom_fwd(cast_inputs=torch.bfloat16)
    def forward(ctx, x):
        return x.dtype

    with cpu_region():
        assert forward(types.SimpleNamespace(), torch.ones(1, device="meta")) == torch.float32


@has_custom_fwd
def test_the_fallback_agrees_with_torch_amp(on_cpu, monkeypatch):
    cases = [
        (cast_inputs, enabled)
        for cast_inputs in (None, torch.float32, torch.bfloat16)
        for enabled in (True, False)
    ]

    def outcomes(fwd, bwd):
        results = []
        for cast_inputs, enabled in cases:
            function, seen = make_function(shim, fwd(cast_inputs=cast_inputs), bwd)
            results.append((run(function, cpu_region(enabled)), seen["forward"], seen["backward"]))
        return results

    def torch_fwd(cast_inputs):
        return torch.amp.custom_fwd(device_type="cpu", cast_inputs=cast_inputs)

    expected = outcomes(torch_fwd, torch.amp.custom_bwd(device_type="cpu"))
    monkeypatch.delattr(torch.amp, "custom_fwd")
    monkeypatch.delattr(torch.amp, "custom_bwd")
    assert outcomes(shim.custom_fwd, shim.custom_bwd) == expected


def test_decorating_does_not_ask_for_the_device(monkeypatch):
    def device_type():
        raise AssertionError("asked")

    monkeypatch.setattr(shim, "device_type", device_type)
    shim.custom_fwd(lambda ctx, x: x)
    shim.custom_fwd(cast_inputs=torch.float32)(lambda ctx, x: x)
    shim.custom_bwd(lambda ctx, g: g)


@has_custom_fwd
def test_the_device_is_decided_at_each_call(monkeypatch):
    asked = []
    monkeypatch.setattr(shim, "device_type", lambda: asked.append(1) or "cpu")
    forward = shim.custom_fwd(lambda ctx, x: x)
    forward(types.SimpleNamespace(), 1)
    forward(types.SimpleNamespace(), 2)
    assert len(asked) == 2


def test_decorated_functions_keep_their_name_and_can_be_pickled():
    assert module_level_forward.__name__ == "module_level_forward"
    assert pickle.loads(pickle.dumps(module_level_forward)) is module_level_forward


def test_without_an_accelerator_custom_functions_run_in_float32(no_accelerator):
    function, seen = make_function(shim, shim.custom_fwd(cast_inputs=torch.float16), shim.custom_bwd)
    assert run(function, shim.autocast(enabled=False)) == torch.float32
    assert seen["forward"] == (torch.float32,) * 3


# ---------------------------------------------------------------------------------- a device named npu


@pytest.mark.skipif(
    not hasattr(torch, "get_autocast_dtype"), reason="older releases need more of the backend"
)
def test_regions_and_custom_functions_react_to_the_autocast_of_an_npu():
    # Naming a backend cannot be undone, hence the process of its own.  It has no kernels: only state is seen.
    code = """
        import types, torch
        torch.utils.rename_privateuse1_backend("npu")
        torch._register_device_module("npu", types.SimpleNamespace(
            is_available=lambda: True,
            get_amp_supported_dtype=lambda: [torch.float16, torch.bfloat16, torch.float32],
        ))
        torch.cuda.is_available = lambda: False
        version = tuple(int(part) for part in torch.__version__.split(".")[:2])
        import amplint.runtime as shim
        assert (shim.device_type(), shim.device()) == ("npu", torch.device("npu"))

        seen = []

        class Same(torch.autograd.Function):
            @staticmethod
            @shim.custom_fwd
            def forward(ctx, x):
                seen.append(shim.is_autocast_enabled())
                return x.clone()

            @staticmethod
            @shim.custom_bwd
            def backward(ctx, g):
                seen.append((shim.is_autocast_enabled(), shim.get_autocast_dtype()))
                return g

        class Cast(torch.autograd.Function):
            @staticmethod
            @shim.custom_fwd(cast_inputs=torch.float32)
            def forward(ctx, x):
                seen.append(shim.is_autocast_enabled())
                return x.clone()

            @staticmethod
            @shim.custom_bwd
            def backward(ctx, g):
                seen.append(shim.is_autocast_enabled())
                return g

        x = torch.ones(1, requires_grad=True)
        with shim.autocast(dtype=torch.bfloat16):
            assert shim.is_autocast_enabled() and torch.is_autocast_enabled("npu")
            assert torch.is_autocast_enabled() == (version >= (2, 14))  # asked about CUDA before
            assert shim.get_autocast_dtype() == torch.bfloat16
            same, cast = Same.apply(x), Cast.apply(x)
        assert not shim.is_autocast_enabled()
        same.backward(torch.ones(1))
        cast.backward(torch.ones(1))
        assert seen == [True, False, (True, torch.bfloat16), False], seen

        scaler = shim.GradScaler()
        assert scaler.is_enabled() and scaler._device == "npu"
        print("done")
    """
    result = run_python(code)
    assert (result.returncode, result.stdout) == (0, "done\n"), result.stderr


# ---------------------------------------------------------------------------------------------- torch.compile


@pytest.mark.skipif(
    not hasattr(torch, "accelerator"), reason="Dynamo of older releases cannot trace autocast"
)
def test_torch_compile_traces_a_decorated_function_without_a_graph_break(on_cpu):
    @shim.autocast(dtype=torch.bfloat16)
    def product(x):
        return torch.mm(x, x)

    compiled = torch.compile(product, backend="eager", fullgraph=True)
    assert compiled(torch.ones(2, 2)).dtype == torch.bfloat16


@pytest.mark.skipif(
    not hasattr(torch, "accelerator"), reason="Dynamo of older releases cannot trace autocast"
)
def test_torch_compile_gives_the_eager_result_for_a_region_opened_inside(on_cpu):
    def product(x):
        with shim.autocast(dtype=torch.bfloat16):
            return torch.mm(x, x)

    assert torch.compile(product, backend="eager")(torch.ones(2, 2)).dtype == torch.bfloat16
