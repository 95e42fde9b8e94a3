"""Trains the street detector on real pictures and a teacher's opinion; resumable, on CPU or CUDA.

  python3 models/train/train_street.py --data ../shared/data/street --work /tmp/street \
      --teacher ../shared/data/models/yolox_nano.onnx --hours 4 --out /tmp/street/model.onnx
  … --device cuda --batch 64 --makers 12 --hours 0.33 --size 416 --views 12000

Stop it at any time and start it again with the same --work: it goes on from
the last checkpoint, and the hours already spent count.
"""

import argparse
import copy
import math
import os
import pathlib
import signal
import subprocess
import sys
import time

import numpy as np
import torch
from torch import nn

import calibrate
import demo_data
import measure
import street_data
import street_views
from loss import taught
from network import cells, rows
from onnxfile import export
from street_network import StreetDetector


class Mean:
    """The moving average of a network's weights: what is judged and shipped."""

    def __init__(self, net):
        self.net, self.steps = copy.deepcopy(net).eval(), 0

    @torch.no_grad()
    def follow(self, net):
        self.steps += 1
        keep = 0.999 * (1 - math.exp(-self.steps / 500))
        for a, b in zip(self.net.state_dict().values(), net.state_dict().values()):
            if a.dtype.is_floating_point:
                a.lerp_(b, 1 - keep)
            else:
                a.copy_(b)


class Hints(nn.Module):
    """What the student's heads start from, turned to be compared with what the teacher's start from."""

    def __init__(self, widths):
        super().__init__()
        self.turn = nn.ModuleList([nn.Conv2d(w, street_views.WIDTH, 1) for w in widths])

    def forward(self, features):
        return rows([turn(f) for turn, f in zip(self.turn, features)])


@torch.no_grad()
def judge(net, pictures, picks, size, device):
    """Pictures picks as measure takes them, by their source."""
    net.eval()
    judged = {}
    corners, strides = (v.numpy() for v in cells(size))
    for i in range(0, len(picks), 8):
        batch, scales = [], []
        for j in picks[i : i + 8]:
            p, boxes, r = street_data.fit(*pictures.get(j), size)
            batch.append(p)
            scales.append((j, boxes))
        raw = net(torch.stack(batch).to(device).float()).cpu().numpy()
        for one, (j, boxes) in zip(raw, scales):
            truth = np.concatenate([boxes, np.ones((len(boxes), 1), np.float32)], 1)
            judged.setdefault(pictures.source(j), []).append((measure.detections(one, corners, strides), truth))
    return judged


def precisions(judged):
    """AP50 by class for each source."""
    return {s: measure.average_precision(v, len(street_data.CLASSES)) for s, v in judged.items()}


def ship(net, args, validation, device):
    """Fits the scores to pictures of the training set, judges all of val, and writes the file, with labels.txt beside it."""
    train = street_data.Pictures(args.data, "train", args.work)
    sets = [(train, 800)]
    if args.render:
        sets.append((street_data.Films(pathlib.Path(args.work) / "films", args.render), 200))
    known, dice = [], np.random.default_rng(1)
    for pictures, some in sets:
        for judged in judge(net, pictures, dice.permutation(len(pictures))[:some], args.ship, device).values():
            known += judged
    curves = calibrate.fit(known, net.classes)
    calibrate.table(known, street_data.CLASSES, *curves)
    net.curves = [torch.from_numpy(v).to(device) for v in curves]
    table(precisions(judge(net, validation, range(len(validation)), args.ship, device)))
    # The demo's classes keep their numbers.
    names = sorted(street_data.CLASSES, key=lambda c: (c not in demo_data.CLASSES, street_data.CLASSES.index(c)))
    net.cpu().curves = [v.cpu() for v in net.curves]
    net.reorder([street_data.CLASSES.index(c) for c in names])
    export(net, pathlib.Path(args.out), args.ship)
    pathlib.Path(args.out).with_name("labels.txt").write_text("\n".join(names) + "\n")


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


def batch(views, picks, dice, device):
    """Views as tensors; all of them mirrored in half of the cases."""
    v = views[picks]
    def get(name, kind):
        t = torch.from_numpy(v[name].astype(kind))
        return (t.pin_memory() if device.type == "cuda" else t).to(device, non_blocking=True)
    x = get("picture", np.uint8).permute(0, 3, 1, 2).float()
    owner, rows_, hint = get("owner", np.int64), get("rows", np.float32), get("hint", np.uint8)
    truth, trust = get("truth", np.float32), get("trust", np.float32)
    if dice.random() < 0.5:
        side = x.shape[3]
        x = x.flip(3)
        order = torch.from_numpy(mirror(side)).to(device)
        owner, rows_, hint = owner[:, order], rows_[:, order], hint[:, order]
        truth[..., [0, 2]] = side - truth[..., [2, 0]]
    light = lambda lo, hi: torch.from_numpy(dice.uniform(lo, hi, (len(x), 1, 1, 1)).astype(np.float32)).to(device)
    x = (x * light(0.85, 1.15) + light(-15, 15)).contiguous(memory_format=torch.channels_last)
    return x, owner, rows_, hint, truth[..., :4], truth[..., 4].clamp(min=0).long(), trust


def mirror(side):
    """The order of the cells of a mirrored picture."""
    order, at = [], 0
    for s in street_views.STRIDES:
        n = side // s
        order.append(at + np.arange(n * n).reshape(n, n)[:, ::-1].ravel())
        at += n * n
    return np.concatenate(order)


def far(hint, target, weight):
    """The distance of the student's hints from the teacher's, weighted by cell."""
    target = target.to(hint.dtype) / street_views.STEPS + street_views.LOW
    each = (hint - target).square().mean(2).float()
    return (each * weight).sum() / weight.sum() / 0.19  # their variance


def learners(net, hints, rate):
    """What is learnt, and its optimizer."""
    learnt = [*net.parameters(), *hints.parameters()]
    return learnt, torch.optim.AdamW(
        [{"params": [q for q in learnt if q.ndim > 1], "weight_decay": 0.03},
         {"params": [q for q in learnt if q.ndim <= 1], "weight_decay": 0.0}], lr=rate)


def learn(net, hints, opt, learnt, scaler, grid, shown, past):
    """A step. Returns the cost, its parts, and the distance of the hints."""
    x, owner, told, hint, gt, kind, trust = shown
    net.train()
    with torch.autocast(x.device.type, dtype=torch.float16 if x.is_cuda else torch.bfloat16):
        features = net.features(x)
        raw = rows([h(f) for h, f in zip(net.heads, features)])
        mine = hints(features)
    cost, parts = taught(raw.float(), *grid, owner, gt, kind, told, trust)
    like = far(mine, hint, 0.3 + (owner >= 0) + told[..., 0] * told[..., 1:].max(-1).values)
    opt.zero_grad(set_to_none=True)
    scaler.scale(cost + (0.5 + 4 * (1 - past)) * like).backward()
    scaler.unscale_(opt)
    torch.nn.utils.clip_grad_norm_(learnt, 10.0)
    scaler.step(opt)
    scaler.update()
    return cost.detach(), parts, like.detach()


def save(path, net, hints, mean, opt, step, spent):
    """Keeps where training stands, all of it or nothing."""
    state = {"net": net.state_dict(), "hints": hints.state_dict(), "mean": mean.net.state_dict(),
             "opt": opt.state_dict(), "step": step, "spent": spent, "mean_steps": mean.steps}
    torch.save(state, path.with_suffix(".new"))
    path.with_suffix(".new").replace(path)


def restore(path, net, hints, mean, opt):
    """Goes on from a checkpoint of either kind of device. Returns the steps and the seconds spent."""
    kept = torch.load(path, map_location="cpu")  # what loads it moves each part to where it belongs
    net.load_state_dict(kept["net"])
    hints.load_state_dict(kept["hints"])
    mean.net.load_state_dict(kept["mean"])
    opt.load_state_dict(kept["opt"])
    mean.steps = kept["mean_steps"]
    return kept["step"], kept["spent"]


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--data", required=True, help="folder with train.json, val.json and the pictures")
    p.add_argument("--work", required=True, help="folder for decoded pictures, views, checkpoints and the log")
    p.add_argument("--out", required=True, help="the ONNX file to write")
    p.add_argument("--teacher", required=True, help="YOLOX-nano's ONNX file")
    p.add_argument("--render", help="the built render command: mixes the demo scene in")
    p.add_argument("--clips", nargs="*", default=[], help="video files whose frames the teacher labels")
    p.add_argument("--hours", type=float, default=4, help="training time over all starts")
    p.add_argument("--size", type=int, default=320, help="side of the input to train at")
    p.add_argument("--ship", type=int, default=416, help="side of the input to judge and export at")
    p.add_argument("--views", type=int, default=16000, help="the pool of varied pictures")
    p.add_argument("--makers", type=int, default=1, help="processes that renew it; 0: another one does")
    p.add_argument("--batch", type=int, default=24)
    p.add_argument("--rate", type=float, default=2.5e-3)
    p.add_argument("--threads", type=int, default=1)
    p.add_argument("--device", default="cpu")
    p.add_argument("--every", type=float, default=8, help="minutes between checkpoints")
    p.add_argument("--judge", action="store_true", help="only judge the checkpoint on all of val, and export it")
    args = p.parse_args()
    torch.set_num_threads(args.threads)
    torch.manual_seed(2)
    work = pathlib.Path(args.work)
    work.mkdir(parents=True, exist_ok=True)
    makers = []
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped; the last checkpoint stays"))
    try:
        if not args.judge:
            for k in range(args.makers):
                command = [sys.executable, street_views.__file__, "--data", args.data, "--work", args.work, "--teacher",
                           args.teacher, "--size", str(args.size), "--views", str(args.views), "--part", str(k), str(args.makers)]
                command += ["--render", args.render] if args.render else []
                # Makers stand back behind training where they share a core with it.
                makers.append(subprocess.Popen(command + ["--clips", *args.clips], preexec_fn=lambda: os.nice(8)))
        train(args, work, makers)
    finally:
        for m in makers:
            m.kill()


def train(args, work, makers):
    device = torch.device(args.device)
    validation = street_data.Pictures(args.data, "val", work)
    net = StreetDetector(len(street_data.CLASSES))
    print(f"{sum(q.numel() for q in net.parameters()):,} parameters", flush=True)
    hints = Hints(net.necks)
    mean, step, spent = Mean(net), 0, 0.0
    net, hints = (m.to(device, memory_format=torch.channels_last) for m in (net, hints))
    mean.net.to(device)
    learnt, opt = learners(net, hints, args.rate)
    saved, log = work / "checkpoint.pt", work / "progress.csv"
    if saved.exists():
        step, spent = restore(saved, net, hints, mean, opt)
        print(f"goes on from step {step}, {spent / 3600:.2f} h", flush=True)
    elif args.judge:
        raise SystemExit(f"no checkpoint in {work}")
    if args.judge:
        ship(mean.net, args, validation, device)
        return

    views = street_views.pool(args.work, args.size, args.views)
    while (views["ready"].sum()) < min(2000, args.views / 2):
        if any(m.poll() is not None for m in makers):
            raise SystemExit("a maker of views ended: see above")
        time.sleep(5)
    if not log.exists():
        log.write_text("step,loss,ap50\n")
    small = [i for i in range(len(validation)) if validation.source(i) == "highway"][::4]
    dice = np.random.default_rng(step + 1)
    grid = [v.to(device) for v in cells(args.size)]
    torch.backends.cudnn.benchmark = True  # every batch has the same shape
    scaler = torch.cuda.amp.GradScaler(enabled=device.type == "cuda")
    begun, since, total, seen, before, first = time.time(), time.time(), 0.0, 0, spent, step
    ready = np.flatnonzero(views["ready"])
    while True:
        spent = before + time.time() - begun
        past = min(spent / (3600 * args.hours), 1)
        rate = args.rate * min((step + 1) / 300, 1) * (0.5 + 0.5 * math.cos(math.pi * past)) + 1e-5
        for group in opt.param_groups:
            group["lr"] = rate
        shown = batch(views, dice.choice(ready, args.batch), dice, device)
        cost, parts, like = learn(net, hints, opt, learnt, scaler, grid, shown, past)
        mean.follow(net)
        step, seen, total = step + 1, seen + 1, total + float(cost)
        if step % 100 == 0:
            ready = np.flatnonzero(views["ready"])
            pace = (time.time() - begun) / (step - first)
            print(f"step {step} {past:.1%} loss {total / seen:.3f} box {parts[0]:.3f} obj {parts[1]:.3f} cls {parts[2]:.3f} "
                  f"cells {parts[3]:.0f} hint {float(like):.3f} rate {rate:.1e} {pace:.2f} s/step, {len(ready)} views", flush=True)
        done = past >= 1
        if done or time.time() - since > 60 * args.every:
            save(saved, net, hints, mean, opt, step, spent)
            result = precisions(judge(mean.net, validation, small, args.ship, device))
            table(result)
            with log.open("a") as f:
                f.write(f"{step},{total / max(seen, 1):.4f},{np.nanmean(result['highway']):.4f}\n")
            total, seen, since = 0.0, 0, time.time()
            plot(work / "progress.svg", log)
        if done:
            break
    ship(mean.net, args, validation, device)


if __name__ == "__main__":
    main()
