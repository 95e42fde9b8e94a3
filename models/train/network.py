"""The demo detector's network: a small anchor-free detector.

Its output follows YOLOX's default export: rows of [x, y, w, h, objectness,
classes...] over the cells of strides 8, 16 and 32, row by row; x and y are
offsets from the cell's corner in strides, w and h logarithms of sizes in
strides; objectness and classes have gone through the sigmoid already.
"""

import torch
from torch import nn
from torch.nn import functional as F

STRIDES = (8, 16, 32)


class Conv(nn.Sequential):
    def __init__(self, cin, cout, size=3, stride=1, act=True):
        layers = [
            nn.Conv2d(cin, cout, size, stride, size // 2, bias=False),
            nn.BatchNorm2d(cout, eps=1e-3, momentum=0.03),
        ]
        if act:
            layers.append(nn.ReLU(inplace=True))
        super().__init__(*layers)


class Block(nn.Module):
    """A residual block with a narrow waist."""

    def __init__(self, width):
        super().__init__()
        self.body = nn.Sequential(
            Conv(width, width // 2, 1), Conv(width // 2, width, 3, act=False)
        )

    def forward(self, x):
        return F.relu(x + self.body(x))


def stage(cin, cout, depth):
    return nn.Sequential(Conv(cin, cout, 3, 2), *[Block(cout) for _ in range(depth)])


class Head(nn.Module):
    """Boxes and classes of one stride, by two branches."""

    def __init__(self, cin, width, classes):
        super().__init__()
        self.box = Conv(cin, width)
        self.kind = Conv(cin, width)
        self.reg = nn.Conv2d(width, 4, 1)
        self.obj = nn.Conv2d(width, 1, 1)
        self.cls = nn.Conv2d(width, classes, 1)
        for layer in (self.obj, self.cls):
            nn.init.constant_(layer.bias, -4.6)
        nn.init.normal_(self.reg.weight, std=0.01)
        with torch.no_grad():
            self.reg.bias.copy_(torch.tensor([0.5, 0.5, 1.0, 1.0]))

    def forward(self, x):
        b, k = self.box(x), self.kind(x)
        return torch.cat([self.reg(b), self.obj(b), self.cls(k)], 1)


class Detector(nn.Module):
    def __init__(self, classes, widths=(16, 24, 40, 64, 96), neck=48, head=32):
        super().__init__()
        w0, w1, w2, w3, w4 = widths
        self.classes = classes
        self.stem = nn.Sequential(Conv(3, w0, 3, 2), Conv(w0, w1, 3, 2))
        self.c3, self.c4, self.c5 = stage(w1, w2, 2), stage(w2, w3, 2), stage(w3, w4, 2)
        self.l5 = Conv(w4 * 2, neck, 1)
        self.l4, self.l3 = Conv(w3, neck, 1), Conv(w2, w2, 1)
        self.d4 = Conv(neck, w2, 1)
        self.p4, self.p3 = Conv(neck, neck), Conv(w2, w2)
        self.heads = nn.ModuleList(
            [Head(w2, head - 8, classes), Head(neck, head, classes), Head(neck, head, classes)]
        )

    def maps(self, x):
        """The three raw maps, objectness and classes as logits; x is BGR, 0 to 255."""
        x = self.stem(x * (1 / 128.0) - 1.0)
        c3 = self.c3(x)
        c4 = self.c4(c3)
        c5 = self.c5(c4)
        c5 = torch.cat([c5, F.max_pool2d(c5, 5, 1, 2)], 1)
        p5 = self.l5(c5)
        p4 = self.p4(self.l4(c4) + F.interpolate(p5, scale_factor=2.0, mode="nearest"))
        p3 = self.p3(self.l3(c3) + F.interpolate(self.d4(p4), scale_factor=2.0, mode="nearest"))
        return [head(p) for head, p in zip(self.heads, (p3, p4, p5))]

    def forward(self, x):
        return flat(self.maps(x))


def flat(maps):
    """The output's rows from the raw maps."""
    return rows([torch.cat([m[:, :4], torch.sigmoid(m[:, 4:])], 1) for m in maps])


def grid(maps):
    """Cell corners in strides and the stride of every row, in output order."""
    corners, strides = [], []
    for m, s in zip(maps, STRIDES):
        h, w = m.shape[2:]
        y, x = torch.meshgrid(torch.arange(h), torch.arange(w), indexing="ij")
        corners.append(torch.stack([x, y], -1).view(-1, 2).float())
        strides.append(torch.full((h * w, 1), float(s)))
    return torch.cat(corners).to(maps[0].device), torch.cat(strides).to(maps[0].device)


def cells(side):
    """The same for a square input of that side."""
    return grid([torch.empty(1, 1, side // s, side // s) for s in STRIDES])


def rows(maps):
    return torch.cat([m.flatten(2).permute(0, 2, 1) for m in maps], 1)


def decode(raw, corners, strides):
    """Boxes x0, y0, x1, y1 in pixels of the input."""
    centre = (raw[..., :2] + corners) * strides
    size = raw[..., 2:4].clamp(max=8).exp() * strides
    return torch.cat([centre - size / 2, centre + size / 2], -1)
