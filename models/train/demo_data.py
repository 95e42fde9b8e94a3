"""Pictures of the demo scene: drawn by the appliance's own renderer, sent
through H.264 as a camera would, and fitted to the network's input."""

import pathlib
import subprocess
import tempfile

import numpy as np
import torch
from torch.nn import functional as F

WIDTH, HEIGHT = 640, 360
SIZE = 416  # the side of the network's input
FIT = (int(HEIGHT * SIZE / WIDTH), SIZE)  # rows, columns of the picture within it
CLASSES = ("person", "bicycle", "car", "bus", "truck")


def bgr(i420):
    """I420 pictures, studio range BT.601, to float BGR [N, 3, H, W]."""
    n = len(i420)
    luma = WIDTH * HEIGHT
    y = torch.from_numpy(i420[:, :luma]).view(n, 1, HEIGHT, WIDTH).float()
    u = torch.from_numpy(i420[:, luma : luma * 5 // 4]).view(n, 1, HEIGHT // 2, WIDTH // 2).float()
    v = torch.from_numpy(i420[:, luma * 5 // 4 :]).view(n, 1, HEIGHT // 2, WIDTH // 2).float()
    up = lambda c: F.interpolate(c, scale_factor=2, mode="nearest") - 128
    y, u, v = (y - 16) * 1.164, up(u), up(v)
    return torch.cat([y + 2.018 * u, y - 0.391 * u - 0.813 * v, y + 1.596 * v], 1).clamp(0, 255)


def film(render, seed, step, count, crf):
    """Frames of a seed after coding and decoding, fitted: uint8 [N, 3, h, w];
    and the truth, rows of frame, x0, y0, x1, y1, class, scored, visibility."""
    with tempfile.TemporaryDirectory() as tmp:
        tmp = pathlib.Path(tmp)
        subprocess.run(
            [render, "-seed", str(seed), "-step", str(step), "-count", str(count),
             "-out", tmp / "raw", "-truth", tmp / "truth"], check=True)
        raw = ["-f", "rawvideo", "-pix_fmt", "yuv420p", "-s", f"{WIDTH}x{HEIGHT}", "-r", "15"]
        quiet = ["ffmpeg", "-v", "error", "-y"]
        subprocess.run(
            quiet + raw + ["-i", tmp / "raw", "-c:v", "libx264", "-preset", "veryfast", "-bf", "0",
                           "-threads", "1", "-crf", str(crf), tmp / "clip.h264"], check=True)
        frames = subprocess.run(
            quiet + ["-threads", "1", "-i", tmp / "clip.h264", "-f", "rawvideo", "-pix_fmt", "yuv420p", "-"],
            check=True, stdout=subprocess.PIPE).stdout
        rows = np.loadtxt(tmp / "truth", delimiter=",", ndmin=2)
    frames = np.frombuffer(frames, np.uint8).reshape(-1, WIDTH * HEIGHT * 3 // 2)
    assert len(frames) == count, f"seed {seed}: {len(frames)} frames of {count}"
    out = np.empty((count, 3, *FIT), np.uint8)
    for i in range(0, count, 50):
        fit = F.interpolate(bgr(frames[i : i + 50].copy()), FIT, mode="bilinear", align_corners=False)
        out[i : i + 50] = fit.round().byte().numpy()
    number = {n + 1: i for i, n in enumerate(range(0, step * count, step))}
    truth = np.zeros((len(rows), 8), np.float32)
    truth[:, 0] = [number[int(f)] for f in rows[:, 0]]
    truth[:, 1:3], truth[:, 3:5] = rows[:, 2:4], rows[:, 2:4] + rows[:, 4:6]
    truth[:, 1:5] *= SIZE / WIDTH
    truth[:, 5], truth[:, 6], truth[:, 7] = rows[:, 7] - 1, rows[:, 6], rows[:, 8]
    return out, truth


def films(cache, render, seeds, step, count, crf):
    """The films of several seeds, kept in the folder cache once made."""
    cache = pathlib.Path(cache)
    cache.mkdir(parents=True, exist_ok=True)
    pictures, truth = [], []
    for seed in seeds:
        at = cache / f"{seed}-{step}-{count}.npz"
        if not at.exists():
            p, t = film(render, seed, step, count, crf(seed))
            np.savez(at, pictures=p, truth=t)
        with np.load(at) as kept:
            t = kept["truth"]
            t[:, 0] += sum(map(len, pictures))
            pictures.append(kept["pictures"])
            truth.append(t)
    truth = np.concatenate(truth)
    pictures = np.concatenate(pictures)
    cut = np.searchsorted(truth[:, 0], np.arange(len(pictures) + 1))
    return pictures, [truth[a:b, 1:] for a, b in zip(cut, cut[1:])]
