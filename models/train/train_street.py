"""Trains the street detector on real pictures; resumable, on CPU or CUDA.

  python3 models/train/train_street.py --data ../shared/data/street --work /tmp/street \
      --hours 4 --out /tmp/street/model.onnx
  nice -n 19 … --threads 1     beside other work
  … --device cuda --batch 64 --workers 12 --hours 0.33 --size 416

Stop it at any time and start it again with the same --work: it goes on from
the last checkpoint, and the hours already spent count.
"""

import argparse
import copy
import math
import pathlib
import time

import numpy as np
import torch
from torch.nn import functional as F
from torch.utils.data import DataLoader

import measure
import street_data
from loss import loss
from network import grid, rows
from onnxfile import export
from street_network import StreetDetector

CALM = 0.15  # the last share of training: no mosaics, the rate near zero


class Mean:
    """The moving average of a network's weights: what is judged and shipped."""

    def __init__(self, net):
        self.net, self.steps = copy.deepcopy(net).eval(), 0

    @torch.no_grad()
    def follow(self, net):
        self.steps += 1
        keep = 0.9998 * (1 - math.exp(-self.steps / 2000))
        for a, b in zip(self.net.state_dict().values(), net.state_dict().values()):
            if a.dtype.is_floating_point:
                a.lerp_(b, 1 - keep)
            else:
                a.copy_(b)


@torch.no_grad()
def judge(net, pictures, picks, size, device):
    """AP50 by class over pictures picks, and the same for each of their sources."""
    net = net.fused().to(device)
    judged = {}
    for i in range(0, len(picks), 16):
        batch, scales = [], []
        for j in picks[i : i + 16]:
            p, boxes, r = street_data.fit(*pictures.get(j), size)
            batch.append(p)
            scales.append((j, boxes))
        maps = net.maps(torch.stack(batch).to(device).float())
        corners, strides = (v.cpu().numpy() for v in grid(maps))
        raw = rows(maps).float()
        raw = torch.cat([raw[..., :4], raw[..., 4:].sigmoid()], 2).cpu().numpy()
        for one, (j, boxes) in zip(raw, scales):
            truth = np.concatenate([boxes, np.ones((len(boxes), 1), np.float32)], 1)
            judged.setdefault(pictures.source(j), []).append((measure.detections(one, corners, strides), truth))
    return {s: measure.average_precision(v, len(street_data.CLASSES)) for s, v in judged.items()}


def table(result):
    for source, ap in sorted(result.items()):
        each = "  ".join(f"{c} {v:.3f}" for c, v in zip(street_data.CLASSES, ap) if not math.isnan(v))
        print(f"AP50 {source:9s} {np.nanmean(ap):.3f}  {each}", flush=True)


def plot(path, log):
    """The course of training as an SVG: loss below, AP50 on the highway above."""
    points = [tuple(map(float, line.split(","))) for line in log.read_text().split()[1:]]
    if len(points) < 2:
        return
    wide, high = 720, 320
    far = max(p[0] for p in points)
    top = max(p[1] for p in points[len(points) // 20 :])
    line = lambda k, most, colour: '<polyline fill="none" stroke="%s" points="%s"/>' % (
        colour, " ".join(f"{40 + p[0] / far * (wide - 60):.1f},{high - 30 - min(p[k] / most, 1) * (high - 50):.1f}"
                         for p in points if not math.isnan(p[k])))
    path.write_text(
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{wide}" height="{high}" font-family="sans-serif" font-size="11">'
        f'<rect width="{wide}" height="{high}" fill="white"/>{line(1, top, "#888")}{line(2, 1, "#06c")}'
        f'<text x="40" y="14" fill="#888">loss (full height {top:.1f})</text>'
        f'<text x="220" y="14" fill="#06c">AP50 of the highway (full height 1)</text>'
        f'<text x="{wide - 110}" y="{high - 10}">{far:.0f} steps</text></svg>')


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--data", required=True, help="folder with train.json, val.json and the pictures")
    p.add_argument("--work", required=True, help="folder for decoded pictures, checkpoints and the log")
    p.add_argument("--out", required=True, help="the ONNX file to write")
    p.add_argument("--render", help="the built render command: mixes the demo scene in")
    p.add_argument("--hours", type=float, default=4, help="training time over all starts")
    p.add_argument("--size", type=int, default=320, help="side of the input to train at")
    p.add_argument("--ship", type=int, default=416, help="side of the input to judge and export at")
    p.add_argument("--batch", type=int, default=24)
    p.add_argument("--rate", type=float, default=2e-3)
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--workers", type=int, default=0, help="processes that vary pictures")
    p.add_argument("--device", default="cpu")
    p.add_argument("--every", type=float, default=20, help="minutes between checkpoints")
    p.add_argument("--judge", action="store_true", help="only judge the checkpoint on all of val, and export it")
    args = p.parse_args()
    torch.set_num_threads(args.threads)
    torch.manual_seed(2)
    work, device = pathlib.Path(args.work), torch.device(args.device)
    validation = street_data.Pictures(args.data, "val", work)
    net = StreetDetector(len(street_data.CLASSES))
    print(f"{sum(q.numel() for q in net.fused().parameters()):,} parameters when fused", flush=True)
    mean, step, spent = Mean(net), 0, 0.0
    decayed = [q for q in net.parameters() if q.ndim > 1]
    plain = [q for q in net.parameters() if q.ndim <= 1]
    # On CPUs torch 1.13 corrupts memory in strided 1x1 convolutions of this layout.
    layout = torch.channels_last if device.type == "cuda" else torch.contiguous_format
    net = net.to(device, memory_format=layout)
    mean.net.to(device)
    opt = torch.optim.AdamW(
        [{"params": decayed, "weight_decay": 0.03}, {"params": plain, "weight_decay": 0.0}], lr=args.rate)
    saved, log = work / "checkpoint.pt", work / "progress.csv"
    if saved.exists():
        kept = torch.load(saved, map_location=device)
        net.load_state_dict(kept["net"])
        mean.net.load_state_dict(kept["mean"])
        opt.load_state_dict(kept["opt"])
        step, spent, mean.steps = kept["step"], kept["spent"], kept["mean_steps"]
        print(f"goes on from step {step}, {spent / 3600:.2f} h", flush=True)
    elif args.judge:
        raise SystemExit(f"no checkpoint in {work}")
    if args.judge:
        table(judge(mean.net, validation, range(len(validation)), args.ship, device))
        export(mean.net.fused(), pathlib.Path(args.out), args.ship)
        return

    sets, shares = [street_data.Pictures(args.data, "train", work)], [1.0]
    if args.render:
        sets.append(street_data.Films(work / "films", args.render, range(1000, 1040)))
        shares.append(0.12)
    varied = street_data.Varied(sets, shares, args.size, seed=step + 1)
    loader = DataLoader(varied, args.batch, num_workers=args.workers, collate_fn=street_data.collate,
                        pin_memory=device.type == "cuda", persistent_workers=args.workers > 0)
    if not log.exists():
        log.write_text("step,loss,ap50\n")
    small = [i for i in range(len(validation)) if validation.source(i) == "highway"][::4]
    chance = torch.Generator(device=device).manual_seed(step + 1)
    dice = np.random.default_rng(step + 1)
    half = device.type == "cuda"
    scaler = torch.cuda.amp.GradScaler(enabled=half)
    begun, since, total = time.time(), time.time(), 0.0
    before, first, seen = spent, step, 0
    for pictures, gt, kind, real in loader:
        spent = before + time.time() - begun
        past = min(spent / (3600 * args.hours), 1)
        if past > 1 - CALM:
            varied.mosaic.zero_()
        rate = args.rate * min((step + 1) / 500, 1) * (0.5 + 0.5 * math.cos(math.pi * past)) + 1e-5
        for group in opt.param_groups:
            group["lr"] = rate
        x = street_data.colours(pictures.to(device, non_blocking=True).float(), chance)
        side = args.size if past > 1 - CALM / 3 else args.size + 32 * int(dice.integers(-2, 3))
        if side != args.size:
            x = F.interpolate(x, (side, side), mode="bilinear", align_corners=False)
            gt = gt * (side / args.size)
        x = x.contiguous(memory_format=layout)
        gt, kind, real = gt.to(device), kind.to(device), real.to(device)
        net.train()
        with torch.autocast(device.type, dtype=torch.float16 if half else torch.bfloat16, enabled=half):
            maps = net.maps(x)
        corners, strides = grid(maps)
        cost, parts = loss(rows(maps).float(), corners, strides, gt, kind, real, gt.new_zeros(len(gt), 1, 4))
        opt.zero_grad(set_to_none=True)
        scaler.scale(cost).backward()
        scaler.unscale_(opt)
        torch.nn.utils.clip_grad_norm_(net.parameters(), 10.0)
        scaler.step(opt)
        scaler.update()
        mean.follow(net)
        step, seen, total = step + 1, seen + 1, total + float(cost.detach())
        if step % 100 == 0:
            pace = (time.time() - begun) / (step - first)
            print(f"step {step} {past:.1%} loss {total / seen:.3f} box {parts[0]:.3f} obj {parts[1]:.3f} "
                  f"cls {parts[2]:.3f} rate {rate:.1e} {pace:.2f} s/step", flush=True)
        done = past >= 1
        if done or time.time() - since > 60 * args.every:
            result = judge(mean.net, validation, small, args.ship, device)
            table(result)
            with log.open("a") as f:
                f.write(f"{step},{total / max(seen, 1):.4f},{np.nanmean(result['highway']):.4f}\n")
            total, seen, since = 0.0, 0, time.time()
            state = {"net": net.state_dict(), "mean": mean.net.state_dict(), "opt": opt.state_dict(),
                     "step": step, "spent": spent, "mean_steps": mean.steps}
            torch.save(state, saved.with_suffix(".new"))
            saved.with_suffix(".new").replace(saved)
            plot(work / "progress.svg", log)
        if done:
            break
    table(judge(mean.net, validation, range(len(validation)), args.ship, device))
    export(mean.net.fused(), pathlib.Path(args.out), args.ship)


if __name__ == "__main__":
    main()
