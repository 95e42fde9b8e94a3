"""Trains the demo detector on rendered streets, and exports it.

  go build -o /tmp/render ./appliance/demo/render
  python3 models/train/train_demo.py --render /tmp/render --cache /tmp/films \
      --out models/demo-detector/1/model.onnx
"""

import argparse
import copy
import math
import pathlib
import time

import numpy as np
import torch
from torch.nn import functional as F

import demo_data
import measure
from loss import loss
from network import Detector, grid, rows
from onnxfile import export

BAND = 256  # the rows of the input that a 16:9 picture reaches, in whole cells
TRAIN_SEEDS = range(1000, 1048)
VALIDATION_SEEDS = range(5000, 5006)


def batch(pictures, truth, pick, rng):
    """Pictures pick, varied, as network input with their boxes."""
    h, w = demo_data.FIT
    scale = 1.0 if rng.random() < 0.5 else rng.uniform(0.85, 1.2)
    x = torch.from_numpy(pictures[pick]).float()
    flips = rng.random(len(pick)) < 0.5
    x[torch.from_numpy(flips)] = x[torch.from_numpy(flips)].flip(3)
    dx = dy = 0
    if scale != 1.0:
        x = F.interpolate(x, (int(h * scale), int(w * scale)), mode="bilinear", align_corners=False)
        if scale > 1:
            dy, dx = rng.integers(0, x.shape[2] - h + 1), rng.integers(0, x.shape[3] - w + 1)
            x = x[:, :, dy : dy + h, dx : dx + w]
    gain = torch.from_numpy(rng.uniform(0.8, 1.25, (len(pick), 1, 1, 1)).astype(np.float32))
    tint = torch.from_numpy(rng.uniform(0.95, 1.05, (len(pick), 3, 1, 1)).astype(np.float32))
    shift = torch.from_numpy(rng.uniform(-12, 12, (len(pick), 1, 1, 1)).astype(np.float32))
    x = (x * gain * tint + shift).clamp(0, 255)
    canvas = torch.full((len(pick), 3, BAND, w), 114.0)
    canvas[:, :, : x.shape[2], : x.shape[3]] = x
    hh, ww = min(x.shape[2], h), min(x.shape[3], w)

    asked, skipped = [], []
    for i, flip in zip(pick, flips):
        t = truth[i].copy()
        if flip:
            t[:, [0, 2]] = w - t[:, [2, 0]]
        t[:, :4] *= scale
        t[:, [0, 2]] -= dx
        t[:, [1, 3]] -= dy
        area = (t[:, 2] - t[:, 0]) * (t[:, 3] - t[:, 1])
        t[:, [0, 2]] = t[:, [0, 2]].clip(0, ww)
        t[:, [1, 3]] = t[:, [1, 3]].clip(0, hh)
        left = (t[:, 2] - t[:, 0]) * (t[:, 3] - t[:, 1])
        ok = (t[:, 5] > 0) & (left > 0.4 * area) & (left > 12)
        asked.append(t[ok])
        skipped.append(t[~ok & (left > 0)])
    g, k = max(max(map(len, asked)), 1), max(max(map(len, skipped)), 1)
    gt, kind = torch.zeros(len(pick), g, 4), torch.zeros(len(pick), g, dtype=torch.long)
    real, skip = torch.zeros(len(pick), g, dtype=torch.bool), torch.zeros(len(pick), k, 4)
    for b, (a, s) in enumerate(zip(asked, skipped)):
        gt[b, : len(a)], kind[b, : len(a)] = torch.from_numpy(a[:, :4]), torch.from_numpy(a[:, 4]).long()
        real[b, : len(a)] = True
        skip[b, : len(s)] = torch.from_numpy(s[:, :4])
    return canvas, gt, kind, real, skip


@torch.no_grad()
def evaluate(net, pictures, truth, picks):
    """Average precision at 0.5, one figure a class, over some pictures."""
    net.eval()
    judged = []
    for i in range(0, len(picks), 16):
        pick = picks[i : i + 16]
        x = torch.full((len(pick), 3, demo_data.SIZE, demo_data.SIZE), 114.0)
        x[:, :, : demo_data.FIT[0]] = torch.from_numpy(pictures[pick]).float()
        maps = net.maps(x)
        corners, strides = grid(maps)
        raw = rows(maps)
        raw = torch.cat([raw[..., :4], raw[..., 4:].sigmoid()], 2).numpy()
        for one, j in zip(raw, pick):
            found = measure.detections(one, corners.numpy(), strides.numpy())
            judged.append((found, truth[j][:, :6]))
    return measure.average_precision(judged, len(demo_data.CLASSES))


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--render", required=True, help="the built render command")
    p.add_argument("--cache", required=True, help="a folder for rendered films and checkpoints")
    p.add_argument("--out", required=True, help="the ONNX file to write")
    p.add_argument("--minutes", type=float, default=28, help="how long to train")
    p.add_argument("--batch", type=int, default=16)
    p.add_argument("--rate", type=float, default=3e-3, help="highest learning rate")
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--init", help="weights to start from")
    p.add_argument("--evaluate", help="only measure these weights on every validation picture, and export them")
    args = p.parse_args()
    torch.set_num_threads(args.threads)
    torch.manual_seed(1)
    rng = np.random.default_rng(1)
    cache = pathlib.Path(args.cache)

    net = Detector(len(demo_data.CLASSES))
    print(f"{sum(q.numel() for q in net.parameters()):,} parameters", flush=True)
    validation = demo_data.films(cache, args.render, VALIDATION_SEEDS, 9, 100, lambda s: 27)
    if args.evaluate:
        net.load_state_dict(torch.load(args.evaluate))
        export(net, pathlib.Path(args.out), demo_data.SIZE)
        report(evaluate(net, *validation, np.arange(len(validation[0]))))
        return
    pictures, truth = demo_data.films(cache, args.render, TRAIN_SEEDS, 6, 150, lambda s: 23 + s % 8)
    print(f"{len(pictures)} pictures to learn from, {len(validation[0])} to be judged on", flush=True)
    if args.init:
        net.load_state_dict(torch.load(args.init))

    mean = copy.deepcopy(net).eval()
    decayed = [q for q in net.parameters() if q.ndim > 1]
    plain = [q for q in net.parameters() if q.ndim <= 1]
    opt = torch.optim.AdamW(
        [{"params": decayed, "weight_decay": 0.02}, {"params": plain, "weight_decay": 0.0}], lr=args.rate)
    net = net.to(memory_format=torch.channels_last)
    start, step, order, said = time.time(), 0, [], 0.0
    warm = 100
    while True:
        past = (time.time() - start) / (60 * args.minutes)
        if past >= 1:
            break
        # One cycle by the clock: however fast the machine, the rate ends near zero.
        rate = args.rate * min((step + 1) / warm, 1) * (0.5 + 0.5 * math.cos(math.pi * past)) + 1e-5
        for group in opt.param_groups:
            group["lr"] = rate
        if len(order) < args.batch:
            order = rng.permutation(len(pictures))
        pick, order = order[: args.batch], order[args.batch :]
        net.train()
        x, gt, kind, real, skip = batch(pictures, truth, pick, rng)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            maps = net.maps(x.contiguous(memory_format=torch.channels_last))
        maps = [m.float() for m in maps]
        corners, strides = grid(maps)
        # Boxes of 16 pixels never fit well: graded scores would keep such people
        # below what starts a track.
        cost, parts = loss(rows(maps), corners, strides, gt, kind, real, skip, graded=False)
        opt.zero_grad(set_to_none=True)
        cost.backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 10.0)
        opt.step()
        step += 1
        keep = min(0.998, (1 + step) / (20 + step))
        with torch.no_grad():
            for a, b in zip(mean.state_dict().values(), net.state_dict().values()):
                if a.dtype.is_floating_point:
                    a.lerp_(b, 1 - keep)
                else:
                    a.copy_(b)
        if step % 50 == 0:
            print(f"step {step} {past:.0%} box {parts[0]:.3f} obj {parts[1]:.3f} cls {parts[2]:.3f} "
                  f"cells {parts[3]:.0f} rate {rate:.1e} {(time.time() - start) / step:.2f} s/step", flush=True)
        if past - said > 0.2:
            said = past
            picks = np.arange(0, len(validation[0]), 10)
            report(evaluate(mean, *validation, picks))
            torch.save(mean.state_dict(), cache / "demo.pt")
            export(mean, pathlib.Path(args.out), demo_data.SIZE)
    torch.save(mean.state_dict(), cache / "demo.pt")
    export(mean, pathlib.Path(args.out), demo_data.SIZE)
    report(evaluate(mean, *validation, np.arange(len(validation[0]))))


def report(ap):
    each = "  ".join(f"{c} {v:.3f}" for c, v in zip(demo_data.CLASSES, ap))
    print(f"AP50 {np.nanmean(ap):.3f}  {each}", flush=True)


if __name__ == "__main__":
    main()
