"""Writes a detector as ONNX, with what is known about its output in the file."""

import onnx
import torch

from network import STRIDES


def export(net, path, size, notes=None):
    path.parent.mkdir(parents=True, exist_ok=True)
    net.eval()
    torch.onnx.export(
        net, torch.zeros(1, 3, size, size), str(path), opset_version=13,
        input_names=["images"], output_names=["output"],
        dynamic_axes={"images": {0: "batch"}, "output": {0: "batch"}})
    # The exporter forgets that only the batch is unknown.
    model = onnx.load(str(path))
    cells = sum((size // s) ** 2 for s in STRIDES)
    for dim, value in zip(model.graph.output[0].type.tensor_type.shape.dim[1:], (cells, 5 + net.classes)):
        dim.ClearField("dim_param")
        dim.dim_value = value
    for key, value in (notes or {}).items():
        entry = model.metadata_props.add()
        entry.key, entry.value = key, value
    onnx.checker.check_model(model)
    onnx.save(model, str(path))
