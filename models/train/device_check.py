"""Trains for some steps on tensors that say they are on a GPU, where there is none: whatever mixes them with tensors
of the processor is an error, as it is on a GPU. Then checkpoints go from one kind of device to the other and back.

  python3 models/train/device_check.py

It shows nothing of CUDA's kernels, of half precision or of speed: those need the GPU.
"""

import pathlib
import tempfile

import numpy as np
import torch
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map

import street_views
import train_street
from network import cells
from street_network import StreetDetector

OTHER = torch.device("meta")  # torch without CUDA knows no other by which tensors can be told apart
SIDE, BATCH, CLASSES = 64, 4, 6


class Placed(torch.Tensor):
    """A tensor that says it is on the GPU; its value is the processor's."""

    @staticmethod
    def __new__(cls, value):
        return torch.Tensor._make_wrapper_subclass(
            cls, value.size(), strides=value.stride(), storage_offset=value.storage_offset(), dtype=value.dtype, device=OTHER)

    def __init__(self, value):
        self.value = value

    __torch_function__ = torch._C._disabled_torch_function_impl

    @classmethod
    def __torch_dispatch__(cls, op, types, args=(), kwargs=None):
        raise NotImplementedError(f"{op} outside of Devices")


class Devices(TorchDispatchMode):
    """Computes on values, and keeps the devices that tensors claim apart."""

    ops = 0

    def __torch_dispatch__(self, op, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        tensors = [v for v in tree_flatten((args, kwargs))[0] if isinstance(v, torch.Tensor)]
        there = [v for v in tensors if isinstance(v, Placed)]
        here = [v for v in tensors if not isinstance(v, Placed) and v.ndim > 0]  # a number goes anywhere
        moves = op in (torch.ops.aten._to_copy.default, torch.ops.aten.copy_.default)
        if there and here and not moves:
            raise RuntimeError(f"{op} of tensors on the GPU and of others: {[tuple(v.shape) for v in here]}")
        Devices.ops += bool(there)
        goal = kwargs.get("device")
        if goal is not None:
            kwargs["device"] = torch.device("cpu")
        kwargs.pop("pin_memory", None)
        mine = {id(v.value): v for v in there}
        result = op(*tree_map(value, args), **tree_map(value, kwargs))
        on = goal.type == OTHER.type if goal is not None else bool(there)
        if op is torch.ops.aten.copy_.default:
            on = isinstance(args[0], Placed)
        place = lambda v: mine[id(v)] if id(v) in mine else Placed(v)  # what was changed in place stays the same tensor
        return tree_map(lambda v: place(v) if on and isinstance(v, torch.Tensor) else v, result)


def value(v):
    return v.value if isinstance(v, Placed) else v


def views():
    """Views of noise, some cells of which have an object."""
    dice = np.random.default_rng(3)
    v = np.zeros(16, street_views.layout(SIDE))
    v["picture"] = dice.integers(0, 255, v["picture"].shape)
    v["hint"] = dice.integers(0, 255, v["hint"].shape)
    v["rows"] = dice.random(v["rows"].shape)
    v["truth"][:, :3] = [8, 8, 40, 48, 2]
    v["owner"] = dice.integers(-1, 3, v["owner"].shape)
    v["trust"], v["ready"] = dice.random(16), 1
    return v


def trainee(device):
    torch.manual_seed(1)
    net = StreetDetector(CLASSES)
    hints = train_street.Hints(net.necks)
    mean = train_street.Mean(net)
    net, hints = (m.to(device, memory_format=torch.channels_last) for m in (net, hints))
    mean.net.to(device)
    return net, hints, mean, *train_street.learners(net, hints, 1e-3)


def steps(device, start, path):
    """Two steps from a checkpoint, if there is one, and the checkpoint after them. Returns the costs."""
    net, hints, mean, learnt, opt = trainee(device)
    if start:
        assert train_street.restore(start, net, hints, mean, opt) == (2, 1.0)
    assert all(q.device.type == device.type for q in [*net.state_dict().values(), *mean.net.state_dict().values()])
    grid, dice, costs = [v.to(device) for v in cells(SIDE)], np.random.default_rng(4), []
    scaler = torch.cuda.amp.GradScaler(enabled=False)
    for _ in range(2):
        shown = train_street.batch(views(), dice.choice(16, BATCH), dice, device)
        cost, _, like = train_street.learn(net, hints, opt, learnt, scaler, grid, shown, 0.5)
        mean.follow(net)
        costs += [float(cost), float(like)]
    for q in learnt:
        kept = opt.state[q]
        assert kept["step"].device.type == "cpu" and kept["exp_avg"].device.type == device.type
    with torch.no_grad():
        judged = mean.net(torch.zeros(1, 3, SIDE, SIDE, dtype=torch.uint8).to(device).float())
    assert judged.device.type == device.type and judged.cpu().numpy().shape[2] == 5 + CLASSES
    train_street.save(path, net, hints, mean, opt, 2, 1.0)
    return costs


def main():
    torch.set_num_threads(1)
    torch.__future__.set_overwrite_module_params_on_conversion(True)
    torch.autocast = lambda *_, **__: torch.enable_grad()  # both in full precision, to be compared
    F.one_hot = lambda k, n: (k[..., None] == torch.arange(n, device=k.device)).long()  # torch's refuses this device
    torch.save, save = lambda state, path: save(tree_map(value, state), path), torch.save
    with tempfile.TemporaryDirectory() as tmp:
        at = {k: pathlib.Path(tmp) / k for k in ("cpu", "gpu", "cpu-gpu", "gpu-cpu")}
        cpu = steps(torch.device("cpu"), None, at["cpu"])
        with Devices():
            try:
                torch.zeros(2, device=OTHER) + torch.zeros(2)
            except RuntimeError:
                pass
            else:
                raise SystemExit("what is mixed is not noticed")
            gpu = steps(OTHER, None, at["gpu"])
            moved = steps(OTHER, at["cpu"], at["cpu-gpu"])
        back = steps(torch.device("cpu"), at["gpu"], at["gpu-cpu"])
    assert np.allclose(cpu, gpu, rtol=1e-4), (cpu, gpu)
    assert np.allclose(moved, back, rtol=1e-4), (moved, back)
    print(f"ok: {Devices.ops} operations on the GPU's tensors alone; costs {[round(c, 4) for c in gpu + moved]}")


if __name__ == "__main__":
    main()
