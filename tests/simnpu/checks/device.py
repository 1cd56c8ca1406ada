"""The device: torch.accelerator, torch.npu, streams, random numbers, files, pinned memory, data loading."""

import copy
import importlib.metadata
import io
import pickle
import sys

import torch
import torch_npu
from torch import nn

from amplint import simnpu


def _raises(kind, function):
    try:
        function()
    except kind as error:
        return str(error)
    raise AssertionError(f"no {kind.__name__}")


def the_accelerator_is_npu():
    assert torch.accelerator.is_available()
    assert torch.accelerator.current_accelerator() == torch.device("npu")
    assert torch.accelerator.current_accelerator(check_available=True).type == "npu"
    assert torch.accelerator.device_count() == torch.npu.device_count() == 2
    assert torch.get_device_module() is torch.npu
    assert torch.get_device_module("npu") is torch.npu
    assert not torch.cuda.is_available()


def torch_npu_is_an_installed_package():
    assert importlib.metadata.version("torch_npu") == torch_npu.__version__
    assert torch_npu.npu is torch.npu
    assert sys.modules["torch_npu.npu.amp"] is torch.npu.amp
    from torch.npu.amp import GradScaler
    from torch_npu.npu.amp import GradScaler as Same

    assert GradScaler is Same


def a_device_is_chosen_by_number_name_or_object():
    for device in (1, "npu:1", torch.device("npu", 1)):
        torch.npu.set_device(device)
        assert torch.npu.current_device() == torch.accelerator.current_device_index() == 1
        torch.npu.set_device(0)
    with torch.npu.device(1):
        assert torch.npu.current_device() == 1
    with torch.accelerator.device_index(1):
        assert torch.accelerator.current_device_index() == 1
    assert torch.npu.current_device() == 0
    torch.accelerator.set_device_index(0)


def a_device_that_is_not_there_raises():
    assert "npu:2" in _raises(RuntimeError, lambda: torch.npu.set_device(2))
    assert "npu:7" in _raises(RuntimeError, lambda: torch.zeros(1, device="npu:7"))


def not_simulated_a_second_device():
    assert torch.zeros(1, device="npu:1").device == torch.device("npu", 0)


def the_chip_is_described():
    assert torch.npu.get_device_name() == "Ascend910B1"
    assert torch.npu.get_device_capability() is None
    assert torch.npu.get_device_properties(0).total_memory == 64 << 30
    assert torch.npu.is_bf16_supported()
    assert torch.npu.utils.is_support_inf_nan()
    assert torch.npu.is_initialized()


def not_simulated_memory_is_never_in_use():
    kept = torch.zeros(1000, device="npu")
    for module in (torch.npu, torch.accelerator):
        assert module.memory_allocated() == module.max_memory_allocated() == module.memory_reserved() == 0
        module.empty_cache()
        module.reset_peak_memory_stats()
    assert torch.npu.memory_stats()["allocated_bytes.all.current"] == 0
    assert torch.npu.mem_get_info() == (64 << 30, 64 << 30)
    assert kept.is_npu


def streams_and_events_are_accepted():
    stream = torch.npu.Stream()
    with torch.npu.stream(stream):
        x = torch.ones(2, device="npu")
    torch.npu.current_stream().wait_stream(stream)
    x.record_stream(stream)
    start, end = torch.npu.Event(enable_timing=True), torch.npu.Event(enable_timing=True)
    start.record()
    end.record()
    end.synchronize()
    assert end.query()
    assert start.elapsed_time(end) >= 0
    with torch.Stream(device="npu") as other:
        event = other.record_event()
    event.synchronize()
    torch.Event(device="npu").synchronize()
    assert isinstance(torch.accelerator.current_stream(), torch.Stream)
    torch.accelerator.set_stream(stream)


def synchronizing_is_counted():
    simnpu.reset_counts()
    for wait in (
        torch.npu.synchronize,
        torch.accelerator.synchronize,
        torch.npu.current_stream().synchronize,
    ):
        wait()
    assert simnpu.sync_counts() == {"synchronize": 3}


def a_seed_decides_what_npu_draws():
    torch.manual_seed(5)
    first = torch.rand(3, device="npu")
    torch.manual_seed(5)
    torch.rand(3)  # the CPU's draws are its own
    assert torch.equal(first, torch.rand(3, device="npu"))
    torch.npu.manual_seed_all(5)
    assert torch.npu.initial_seed() == 5
    assert torch.equal(first, torch.rand(3, device="npu"))


def the_random_state_is_saved_and_restored():
    state = torch.npu.get_rng_state()
    first = torch.rand(3, device="npu")
    torch.npu.set_rng_state(state)
    assert torch.equal(first, torch.rand(3, device="npu"))
    torch.npu.set_rng_state_all(torch.npu.get_rng_state_all())
    with torch.random.fork_rng(device_type="npu", devices=[0]):
        second = torch.rand(3, device="npu")
    assert torch.equal(second, torch.rand(3, device="npu"))


def a_generator_belongs_to_npu():
    generator = torch.Generator(device="npu").manual_seed(3)
    assert generator.device == torch.device("npu", 0)
    first = torch.randn(3, device="npu", generator=generator)
    generator.manual_seed(3)
    assert torch.equal(first, torch.randn(3, device="npu", generator=generator))
    nn.init.normal_(torch.empty(3, device="npu"), generator=generator)
    assert isinstance(torch.default_generator, torch.Generator)
    assert torch.Generator().device.type == "cpu"
    clone = pickle.loads(pickle.dumps(generator))
    assert torch.equal(
        torch.rand(2, device="npu", generator=clone), torch.rand(2, device="npu", generator=generator)
    )


def a_state_dict_is_saved_and_loaded():
    def saved(module):
        file = io.BytesIO()
        torch.save(module.state_dict(), file)
        file.seek(0)
        return file

    layer = nn.Linear(2, 2).npu()
    weight = torch.load(saved(layer), weights_only=True)["weight"]
    assert weight.is_npu
    assert torch.equal(weight, layer.weight)
    for location in ("cpu", torch.device("cpu"), {"npu:0": "cpu"}, lambda storage, place: storage):
        assert torch.load(saved(layer), map_location=location)["weight"].device.type == "cpu", location
    for location in ("npu", "npu:0", torch.device("npu"), {"cpu": "npu:0"}):
        assert torch.load(saved(nn.Linear(2, 2)), map_location=location)["weight"].is_npu, location


def tensors_are_pickled_and_copied():
    x = torch.ones(2, device="npu")
    assert copy.deepcopy(x).is_npu
    assert pickle.loads(pickle.dumps(x)).tolist() == [1, 1]
    storage = x.untyped_storage()
    assert storage.clone().device == storage.device
    assert storage.cpu().device.type == "cpu"
    assert torch.UntypedStorage(8, device="npu").nbytes() == 8
    pickle.loads(pickle.dumps(torch.npu.amp.GradScaler()))


def pinned_memory_says_so():
    x = torch.ones(2).pin_memory()
    assert x.is_pinned()
    assert x[:1].is_pinned()
    assert not torch.ones(2).is_pinned()
    assert not x.clone().is_pinned()
    assert x.to("npu", non_blocking=True).tolist() == [1, 1]


def a_data_loader_pins_and_its_workers_run():
    data = torch.utils.data.TensorDataset(torch.randn(16, 4), torch.arange(16))
    for workers in (0, 2):
        loader = torch.utils.data.DataLoader(data, 4, pin_memory=True, num_workers=workers)
        for x, _ in loader:
            assert x.is_pinned()
            assert x.to("npu", non_blocking=True).is_npu


def a_second_activation_is_accepted_only_with_the_same_settings():
    simnpu.activate(devices=2)
    assert "910A" not in _raises(RuntimeError, lambda: simnpu.activate(soc="910A", devices=2))
    assert simnpu.is_active()
    assert simnpu.current_settings().soc == "910B"
