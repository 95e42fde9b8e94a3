"""Street photographs with boxes (COCO-style json), varied for training.

The pictures stay where they are; what is decoded once is kept in a cache
outside the repository.
"""

import json
import pathlib
import subprocess
import tempfile

import numpy as np
import torch
from PIL import Image
from torch.nn import functional as F

import demo_data
import measure
from network import cells

CLASSES = ("person", "bicycle", "car", "motorcycle", "bus", "truck")
PAD = 114


class Pictures:
    """All pictures of one split, decoded: BGR bytes in one file, mapped."""

    def __init__(self, root, split, cache):
        root, cache = pathlib.Path(root), pathlib.Path(cache)
        cache.mkdir(parents=True, exist_ok=True)
        labels = json.loads((root / f"{split}.json").read_text())
        assert [c["name"] for c in labels["categories"]] == list(CLASSES), "other classes than expected"
        self.images = labels["images"]
        place = {im["id"]: i for i, im in enumerate(self.images)}
        boxes = [[] for _ in self.images]
        for a in labels["annotations"]:
            x, y, w, h = a["bbox"]
            boxes[place[a["image_id"]]].append([x, y, x + w, y + h, a["category_id"]])
        self.boxes = [np.array(b, np.float32).reshape(-1, 5) for b in boxes]
        sizes = np.array([im["width"] * im["height"] * 3 for im in self.images])
        self.offsets = np.concatenate([[0], np.cumsum(sizes)])
        path = cache / f"{split}.bgr"
        if not path.exists() or path.stat().st_size != self.offsets[-1]:
            with open(path, "wb") as f:
                for im in self.images:
                    with Image.open(root / split / im["file_name"]) as p:
                        rgb = np.asarray(p.convert("RGB"))
                    assert rgb.shape == (im["height"], im["width"], 3), im["file_name"]
                    f.write(np.ascontiguousarray(rgb[..., ::-1]).tobytes())
        self.bytes = np.memmap(path, np.uint8, "r")

    def __len__(self):
        return len(self.images)

    def source(self, i):
        return self.images[i]["source"]

    def get(self, i):
        """Picture i as uint8 [3, h, w] and its boxes x0, y0, x1, y1, class."""
        im = self.images[i]
        flat = self.bytes[self.offsets[i] : self.offsets[i + 1]]
        picture = np.array(flat).reshape(im["height"], im["width"], 3).transpose(2, 0, 1)
        return torch.from_numpy(np.ascontiguousarray(picture)), self.boxes[i].copy()


class Films:
    """Rendered streets of the demo scene, with their classes renumbered."""

    def __init__(self, cache, render, seeds=range(1000, 1040)):
        self.pictures, truth = demo_data.films(cache, render, seeds, 45, 20, lambda s: 23 + s % 8)
        number = np.array([CLASSES.index(c) for c in demo_data.CLASSES], np.float32)
        self.boxes = []
        for t in truth:
            t = t[t[:, 5] > 0]
            self.boxes.append(np.concatenate([t[:, :4], number[t[:, 4].astype(int)][:, None]], 1))

    def __len__(self):
        return len(self.pictures)

    def source(self, _):
        return "rendered"

    def get(self, i):
        return torch.from_numpy(self.pictures[i]), self.boxes[i].copy()


class Clips:
    """Frames of video clips with what the teacher sees in them for labels."""

    def __init__(self, files, cache, teacher, side=640, sure=0.4):
        path = pathlib.Path(cache) / "clips.pt"
        if not path.exists():
            self.pictures, self.boxes = [], []
            for file in sorted(files):
                for picture in frames(file, side):
                    x, _, r = fit(picture, np.zeros((0, 5), np.float32), side)
                    with torch.autocast("cpu", dtype=torch.bfloat16):
                        row = teacher(x[None].float())[0]
                    corners, strides = (v.numpy() for v in cells(side))
                    found = measure.detections(row[0].numpy(), corners, strides, sure)
                    self.pictures.append(picture)
                    self.boxes.append(np.concatenate([found[:, :4] / r, found[:, 5:]], 1))
            torch.save((self.pictures, self.boxes), path)
        self.pictures, self.boxes = torch.load(path, weights_only=False)  # arrays, and written above

    def __len__(self):
        return len(self.pictures)

    def get(self, i):
        return self.pictures[i], self.boxes[i].copy()


def frames(file, side, most=150):
    """Frames of a clip, five a second and no more than most, spread evenly: uint8 [3, h, w], the long side as given."""
    probe = ["ffprobe", "-v", "error", "-show_entries", "format=duration", "-of", "csv=p=0", file]
    seconds = float(subprocess.run(probe, check=True, stdout=subprocess.PIPE).stdout)
    pictures = f"fps={min(5, most / seconds):.4f},scale={side}:{side}:force_original_aspect_ratio=decrease"
    with tempfile.TemporaryDirectory() as tmp:
        subprocess.run(["ffmpeg", "-v", "error", "-threads", "1", "-i", file, "-vf", pictures, f"{tmp}/%05d.png"], check=True)
        for name in sorted(pathlib.Path(tmp).iterdir()):
            with Image.open(name) as p:
                yield torch.from_numpy(np.asarray(p.convert("RGB"))[..., ::-1].transpose(2, 0, 1).copy())


def fit(picture, boxes, size):
    """Letterbox at the top left, as the product prepares pictures."""
    _, h, w = picture.shape
    r = min(size / h, size / w)
    nh, nw = int(h * r), int(w * r)
    out = torch.full((3, size, size), PAD, dtype=torch.uint8)
    out[:, :nh, :nw] = resize(picture, nh, nw)
    boxes = boxes.copy()
    boxes[:, :4] *= r
    return out, boxes, r


def resize(picture, h, w):
    if picture.shape[1:] == (h, w):
        return picture
    x = F.interpolate(picture[None].float(), (h, w), mode="bilinear", align_corners=False)
    return x[0].round().byte()


class Varied:
    """Endless variations of the pictures of sets, one of which is drawn by its share for each."""

    def __init__(self, sets, shares, size, seed):
        self.sets, self.shares, self.size = sets, np.array(shares) / sum(shares), size
        self.rng = np.random.default_rng(seed)
        self.chances = [np.cumsum(wanted(s.boxes)) if len(s) else None for s in sets]

    def next(self):
        """A picture uint8 [3, size, size], its boxes, and the set it comes from."""
        s = self.rng.choice(len(self.sets), p=self.shares)
        make = self.mosaicked if self.rng.random() < 0.5 else self.single
        return *make(s), s

    def pick(self, s):
        i = np.searchsorted(self.chances[s], self.rng.random() * self.chances[s][-1])
        picture, boxes = self.sets[s].get(min(int(i), len(self.sets[s]) - 1))
        if self.rng.random() < 0.5:
            picture = picture.flip(2)
            boxes[:, [0, 2]] = picture.shape[2] - boxes[:, [2, 0]]
        return picture, boxes

    def place(self, s, canvas, area, scale, anchor):
        """Puts a picture on canvas within area (x0, y0, x1, y1), anchor decides
        which corner of the area it keeps to; returns its boxes there."""
        picture, boxes = self.pick(s)
        _, h, w = picture.shape
        r = scale * min(self.size / h, self.size / w)
        rng = self.rng
        stretch = rng.uniform(0.88, 1.14)
        nh, nw = max(int(h * r), 8), max(int(w * r * stretch), 8)
        picture = resize(picture, nh, nw)
        x0, y0, x1, y1 = area
        aw, ah = x1 - x0, y1 - y0
        dx = x0 + (0 if anchor[0] == 0 else aw - nw) if anchor[0] is not None else x0 + int(rng.uniform(min(aw - nw, 0), max(aw - nw, 0) + 1))
        dy = y0 + (0 if anchor[1] == 0 else ah - nh) if anchor[1] is not None else y0 + int(rng.uniform(min(ah - nh, 0), max(ah - nh, 0) + 1))
        cx0, cy0, cx1, cy1 = max(dx, x0), max(dy, y0), min(dx + nw, x1), min(dy + nh, y1)
        if cx1 <= cx0 or cy1 <= cy0:
            return np.zeros((0, 5), np.float32)
        canvas[:, cy0:cy1, cx0:cx1] = picture[:, cy0 - dy : cy1 - dy, cx0 - dx : cx1 - dx]
        boxes[:, [0, 2]] = boxes[:, [0, 2]] * (nw / w) + dx
        boxes[:, [1, 3]] = boxes[:, [1, 3]] * (nh / h) + dy
        whole = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
        boxes[:, [0, 2]] = boxes[:, [0, 2]].clip(cx0, cx1)
        boxes[:, [1, 3]] = boxes[:, [1, 3]].clip(cy0, cy1)
        left = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
        return boxes[(left > 0.25 * whole) & (left > 16)]

    def single(self, s):
        canvas = torch.full((3, self.size, self.size), PAD, dtype=torch.uint8)
        scale = self.rng.uniform(0.6, 1.6) if self.rng.random() < 0.6 else 1.0
        anchor = (0, 0) if scale == 1.0 else (None, None)
        return canvas, self.place(s, canvas, (0, 0, self.size, self.size), scale, anchor)

    def mosaicked(self, s):
        side = self.size
        canvas = torch.full((3, side, side), PAD, dtype=torch.uint8)
        cx, cy = (int(self.rng.uniform(0.3, 0.7) * side) for _ in range(2))
        boxes = []
        for area, anchor in (
            ((0, 0, cx, cy), (1, 1)), ((cx, 0, side, cy), (0, 1)),
            ((0, cy, cx, side), (1, 0)), ((cx, cy, side, side), (0, 0)),
        ):
            boxes.append(self.place(s, canvas, area, self.rng.uniform(0.4, 1.1), anchor))
        return canvas, np.concatenate(boxes)


def wanted(boxes, share=0.3):
    """How often each picture is to be seen: the more, the fewer pictures show a class of it."""
    has = np.array([[(b[:, 4] == c).any() for c in range(len(CLASSES))] for b in boxes])
    often = np.maximum(1, np.sqrt(share / np.maximum(has.mean(0), 1e-6)).clip(max=3))
    return np.where(has.any(1), (has * often).max(1), 1)


def colours(x, rng):
    """Light, contrast, tint, and a little noise: a batch of floats, in place."""
    n = len(x)
    shape = (n, 1, 1, 1)
    draw = lambda lo, hi, s=shape: torch.empty(s, device=x.device).uniform_(lo, hi, generator=rng)
    grey = x.mean(1, keepdim=True)
    x = grey + (x - grey) * draw(0.4, 1.5)
    x = (x - 114) * draw(0.6, 1.35) + 114 + draw(-45, 30)
    x = x * draw(0.9, 1.1, (n, 3, 1, 1))
    noisy = draw(-1, 1) > 0.4
    x = x + torch.randn(x.shape, device=x.device, generator=rng) * draw(0, 9) * noisy
    return x.clamp(0, 255)


STREET, RENDERED, CLIPS = range(3)


def sets(data, work, render, clips, teacher):
    """The pictures to learn from, in the order of the constants above, and their shares."""
    work = pathlib.Path(work)
    street = Pictures(data, "train", work)
    films = Films(work / "films", render) if render else []
    shots = Clips(clips, work, teacher) if clips else []
    every = [(street, 0.72), (films, 0.18), (shots, 0.10)]
    return [s for s, _ in every], [share if len(s) else 0 for s, share in every]
