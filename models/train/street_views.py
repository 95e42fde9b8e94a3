"""A pool of varied pictures with what a teacher says about them, kept in a file so that the
teacher runs once for what is learnt many times; a process beside training renews it for ever.

  python3 models/train/street_views.py --data … --work … [--render …] [--clips FILE…]
"""

import argparse
import pathlib
import time

import numpy as np
import torch

import street_data
from loss import assign
from network import STRIDES, cells, decode
from teacher import WIDTH, Teacher

MOST = 64  # objects of a view: of more, the smallest are left out
LOW, STEPS = -0.3, 36.0  # a byte of a hint is (value - LOW) * STEPS


def layout(size):
    """One view. The hint and the teacher's opinion are by cell; owner is the object that a cell answers for."""
    n = sum((size // s) ** 2 for s in STRIDES)
    return np.dtype([
        ("picture", "u1", (size, size, 3)), ("hint", "u1", (n, WIDTH)),
        ("rows", "f2", (n, 1 + len(street_data.CLASSES))), ("owner", "i2", (n,)),
        ("truth", "f4", (MOST, 5)), ("trust", "f4"), ("ready", "u1"),
    ])


def pool(work, size, count):
    """The pool in folder work, made empty if it is not there."""
    path = pathlib.Path(work) / f"views-{size}"
    kind = layout(size)
    if not path.exists() or path.stat().st_size != count * kind.itemsize:
        with open(path, "wb") as f:
            f.truncate(count * kind.itemsize)
    return np.memmap(path, kind, "r+")


@torch.no_grad()
def view(samples, teacher, chance, size):
    """Views of samples: (picture, boxes, set) each."""
    out = np.zeros(len(samples), layout(size))
    x = street_data.colours(torch.stack([p for p, _, _ in samples]).float(), chance).round()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        rows, hint = teacher(x)
    for o, (_, boxes, origin) in zip(out, samples):
        area = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
        boxes = boxes[np.argsort(-area)[:MOST]]
        o["truth"][: len(boxes)] = boxes
        o["truth"][len(boxes) :, 4] = -1
        o["trust"] = origin != street_data.RENDERED
    truth = torch.from_numpy(out["truth"].copy())
    corners, strides = cells(size)
    logits = torch.cat([rows[..., :4], rows[..., 4:].clamp(1e-4, 1 - 1e-4).logit()], 2)
    for i in range(len(samples)):
        g = max(int((truth[i, :, 4] >= 0).sum()), 1)
        t = truth[i : i + 1, :g]
        owner, _ = assign(decode(rows[i : i + 1], corners, strides), logits[i : i + 1], corners, strides,
                          t[..., :4], t[..., 4].clamp(min=0).long(), t[..., 4] >= 0, square=0.5)
        out["owner"][i] = owner[0].numpy()
    out["picture"] = x.byte().permute(0, 2, 3, 1).numpy()
    out["hint"] = ((hint - LOW) * STEPS).round().clamp(0, 255).byte().numpy()
    out["rows"] = rows[..., 4:].numpy()
    return out


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--data", required=True)
    p.add_argument("--work", required=True)
    p.add_argument("--teacher", required=True, help="YOLOX-nano's ONNX file")
    p.add_argument("--render", help="the built render command: mixes the demo scene in")
    p.add_argument("--clips", nargs="*", default=[], help="video files whose frames the teacher labels")
    p.add_argument("--size", type=int, default=320)
    p.add_argument("--views", type=int, default=16000, help="of half a megabyte each, at 320")
    p.add_argument("--part", type=int, nargs=2, default=(0, 1), metavar=("K", "N"), help="renew only part K of N")
    args = p.parse_args()
    torch.set_num_threads(1)
    seed = time.time_ns()
    torch.manual_seed(seed)
    teacher = Teacher(args.teacher)
    sets, shares = street_data.sets(args.data, args.work, args.render, args.clips, teacher)
    print(" + ".join(str(len(s)) for s in sets), "pictures", flush=True)
    varied = street_data.Varied(sets, shares, args.size, [args.part[0], seed])
    chance = torch.Generator().manual_seed(seed)
    views = pool(args.work, args.size, args.views)
    places = np.arange(*(args.part[0], args.views, args.part[1]))
    empty = places[views["ready"][places] == 0]
    begun, done = time.time(), 0
    while True:
        for at in range(0, len(empty), 16):
            here = empty[at : at + 16]
            new = view([varied.next() for _ in here], teacher, chance, args.size)
            views["ready"][here] = 0
            for name in views.dtype.names[:-1]:
                views[name][here] = new[name]
            views["ready"][here] = 1
            done += len(here)
            if done % 1600 == 0:
                print(f"{done} views, {done / (time.time() - begun):.1f} a second", flush=True)
        empty = varied.rng.permutation(places)


if __name__ == "__main__":
    main()
