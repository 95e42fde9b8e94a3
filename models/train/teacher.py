"""YOLOX-nano as a teacher: its ONNX file, run node by node in torch on pictures of any
size, and what a student can learn from it beside its boxes."""

import onnx
import torch
from onnx import numpy_helper
from torch.nn import functional as F

# Its classes (COCO's numbers) that are ours, in our order.
COCO = (0, 1, 2, 3, 5, 7)
WIDTH = 64  # channels that each head of it starts from


class Teacher:
    def __init__(self, path):
        graph = onnx.load(str(path)).graph
        self.known = {t.name: torch.from_numpy(numpy_helper.to_array(t).copy()) for t in graph.initializer}
        self.nodes = [(n.op_type, list(n.input), n.output[0], {a.name: onnx.helper.get_attribute_value(a) for a in n.attribute})
                      for n in graph.node]
        for name, t in self.known.items():
            if t.ndim == 4:
                self.known[name] = t.contiguous(memory_format=torch.channels_last)
        # Both branches of a head are depthwise convolutions of one tensor: three of those, from fine to coarse.
        readers = {}
        for op, inputs, _, attributes in self.nodes:
            if op == "Conv" and attributes["group"] == WIDTH:
                readers.setdefault(inputs[0], []).append(op)
        self.hints = [name for name, ops in readers.items() if len(ops) == 2][-3:]

    @torch.no_grad()
    def __call__(self, x):
        """x is [B, 3, H, W], BGR 0 to 255, sides multiples of 32. Returns the rows of all cells
        [B, N, 5 + 6] (as network.py has them: objectness and our classes as probabilities)
        and the tensors that its heads start from, by cell: [B, N, 64]."""
        at, maps = {"images": x.contiguous(memory_format=torch.channels_last)}, []
        get = lambda name: at[name] if name in at else self.known.get(name)
        for op, inputs, output, a in self.nodes:
            v = get(inputs[0])
            if op == "Conv":
                assert a["pads"][:2] == a["pads"][2:], "a padding that differs by side"
                v = F.conv2d(v, get(inputs[1]), get(inputs[2]), a["strides"], a["pads"][:2], 1, a["group"])
            elif op == "Sigmoid":
                v = v.sigmoid()
            elif op == "Mul":
                v = v * get(inputs[1])
            elif op == "Add":
                v = v + get(inputs[1])
            elif op == "Slice":
                start, end, axis, step = (int(get(name)) for name in inputs[1:])
                v = v[tuple(slice(start, end, step) if d == axis else slice(None) for d in range(v.ndim))]
            elif op == "MaxPool":
                v = F.max_pool2d(v, a["kernel_shape"], a["strides"], a["pads"][:2])
            elif op == "Resize":
                v = F.interpolate(v, scale_factor=2.0, mode="nearest")
            elif op == "Concat":
                v = torch.cat([get(name) for name in inputs], a["axis"])
            elif op == "Reshape":  # a head's map: the joining that follows is done below
                maps.append(v)
                if len(maps) == 3:
                    break
            else:
                raise ValueError(f"{op}: unknown to this reader of YOLOX")
            at[output] = v
        cells = lambda ms: torch.cat([m.flatten(2).transpose(1, 2) for m in ms], 1).float()
        rows = cells(maps)
        ours = [0, 1, 2, 3, 4, *(5 + c for c in COCO)]
        return rows[..., ours], cells([at[h] for h in self.hints])
