"""Street photographs with boxes (COCO-style json), varied for training.

The pictures stay where they are; what is decoded once is kept in a cache
outside the repository.
"""

import json
import pathlib

import numpy as np
import torch
from PIL import Image
from torch.nn import functional as F
from torch.utils.data import IterableDataset

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

    def __init__(self, cache, render, seeds):
        import demo_data

        self.pictures, truth = demo_data.films(cache, render, seeds, 45, 20, lambda s: 23 + s % 8)
        number = np.array([CLASSES.index(c) for c in demo_data.CLASSES], np.float32)
        self.boxes = []
        for t in truth:
            t = t[t[:, 5] > 0]
            self.boxes.append(np.concatenate([t[:, :4], number[t[:, 4].astype(int)][:, None]], 1))

    def __len__(self):
        return len(self.pictures)

    def get(self, i):
        return torch.from_numpy(self.pictures[i]), self.boxes[i].copy()


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


class Varied(IterableDataset):
    """Endless varied samples: float BGR is made later, on the device.

    plain is the share of training, counted from the end, without mosaics:
    set by the trainer through self.mosaic.
    """

    def __init__(self, sets, shares, size, seed):
        self.sets, self.shares, self.size, self.seed = sets, np.array(shares) / sum(shares), size, seed
        self.mosaic = torch.ones(1).share_memory_()  # the trainer turns it to 0 near the end

    def __iter__(self):
        info = torch.utils.data.get_worker_info()
        rng = np.random.default_rng((self.seed, info.id if info else 0))
        while True:
            if rng.random() < 0.6 * float(self.mosaic):
                yield self.mosaicked(rng)
            else:
                yield self.single(rng)

    def pick(self, rng):
        s = self.sets[rng.choice(len(self.sets), p=self.shares)]
        picture, boxes = s.get(rng.integers(len(s)))
        if rng.random() < 0.5:
            picture = picture.flip(2)
            boxes[:, [0, 2]] = picture.shape[2] - boxes[:, [2, 0]]
        return picture, boxes

    def place(self, rng, canvas, area, scale, anchor):
        """Puts a picture on canvas within area (x0, y0, x1, y1), anchor decides
        which corner of the area it keeps to; returns its boxes there."""
        picture, boxes = self.pick(rng)
        _, h, w = picture.shape
        r = scale * min(self.size / h, self.size / w)
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

    def single(self, rng):
        canvas = torch.full((3, self.size, self.size), PAD, dtype=torch.uint8)
        scale = rng.uniform(0.6, 1.6) if rng.random() < 0.7 else 1.0
        anchor = (0, 0) if scale == 1.0 else (None, None)
        return canvas, self.place(rng, canvas, (0, 0, self.size, self.size), scale, anchor)

    def mosaicked(self, rng):
        s = self.size
        canvas = torch.full((3, s, s), PAD, dtype=torch.uint8)
        cx, cy = (int(rng.uniform(0.3, 0.7) * s) for _ in range(2))
        boxes = []
        for area, anchor in (
            ((0, 0, cx, cy), (1, 1)), ((cx, 0, s, cy), (0, 1)), ((0, cy, cx, s), (1, 0)), ((cx, cy, s, s), (0, 0)),
        ):
            boxes.append(self.place(rng, canvas, area, rng.uniform(0.4, 1.1), anchor))
        return canvas, np.concatenate(boxes)


def collate(samples):
    pictures = torch.stack([p for p, _ in samples])
    most = max(max(len(b) for _, b in samples), 1)
    gt = torch.zeros(len(samples), most, 4)
    kind = torch.zeros(len(samples), most, dtype=torch.long)
    real = torch.zeros(len(samples), most, dtype=torch.bool)
    for i, (_, b) in enumerate(samples):
        b = torch.from_numpy(np.asarray(b, np.float32))
        gt[i, : len(b)], kind[i, : len(b)], real[i, : len(b)] = b[:, :4], b[:, 4].long(), True
    return pictures, gt, kind, real


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
