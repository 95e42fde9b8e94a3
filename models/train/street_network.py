"""The street detector's network: about a million parameters, plain convolutions with short ways round them, a
neck that goes up and down, and the same output as the demo detector's (network.py)."""

import torch
from torch import nn
from torch.nn import functional as F

from network import Conv, flat, stage


class Head(nn.Module):
    """Boxes, objectness and classes of one stride, from a convolution of their own each or shared."""

    def __init__(self, cin, width, classes, shared):
        super().__init__()
        self.box = Conv(cin, width)
        self.kind = None if shared else Conv(cin, width)
        self.reg = nn.Conv2d(width, 5, 1)
        self.cls = nn.Conv2d(width, classes, 1)
        nn.init.normal_(self.reg.weight, std=0.01)
        nn.init.constant_(self.cls.bias, -2.0)
        with torch.no_grad():
            self.reg.bias.copy_(torch.tensor([0.5, 0.5, 1.0, 1.0, -4.6]))

    def forward(self, x):
        b = self.box(x)
        return torch.cat([self.reg(b), self.cls(b if self.kind is None else self.kind(x))], 1)


class StreetDetector(nn.Module):
    def __init__(self, classes, widths=(16, 32, 48, 96, 160), depths=(1, 2, 2), necks=(48, 64, 64)):
        super().__init__()
        w0, w1, w2, w3, w4 = widths
        n3, n4, n5 = self.necks = necks
        self.classes, self.curves = classes, None  # of calibrated scores (calibrate.py)
        self.stem = nn.Sequential(Conv(3, w0, 3, 2), Conv(w0, w1, 3, 2))
        self.c3, self.c4, self.c5 = (stage(a, b, d) for a, b, d in zip(widths[1:], widths[2:], depths))
        self.l5, self.l4, self.l3 = Conv(2 * w4, n5, 1), Conv(w3, n4, 1), Conv(w2, n3, 1)
        self.narrow = Conv(n4, n3, 1)
        self.up4, self.up3 = Conv(n4, n4), Conv(n3, n3)
        self.down3, self.down4 = Conv(n3, n4, 3, 2), Conv(n4, n5, 3, 2)
        self.out4, self.out5 = Conv(n4, n4), Conv(n5, n5)
        self.heads = nn.ModuleList([Head(n3, 48, classes, True), Head(n4, 48, classes, False), Head(n5, 48, classes, False)])

    def features(self, x):
        """What the heads of the three strides start from; x is BGR, 0 to 255."""
        c3 = self.c3(self.stem(x * (1 / 128.0) - 1.0))
        c4 = self.c4(c3)
        c5 = self.c5(c4)
        up = lambda v: F.interpolate(v, scale_factor=2.0, mode="nearest")
        p5 = self.l5(torch.cat([c5, F.max_pool2d(c5, 5, 1, 2)], 1))
        p4 = self.up4(self.l4(c4) + up(p5))
        p3 = self.up3(self.l3(c3) + up(self.narrow(p4)))
        p4 = self.out4(p4 + self.down3(p3))
        p5 = self.out5(p5 + self.down4(p4))
        return p3, p4, p5

    def maps(self, x):
        """The three raw maps, objectness and classes as logits."""
        return [head(p) for head, p in zip(self.heads, self.features(x))]

    def forward(self, x):
        return flat(self.maps(x)) if self.curves is None else calibrated(flat(self.maps(x)), *self.curves)

    @torch.no_grad()
    def reorder(self, order):
        """Numbers the classes anew: class order[i] becomes class i."""
        for head in self.heads:
            head.cls.weight.copy_(head.cls.weight[order])
            head.cls.bias.copy_(head.cls.bias[order])
        if self.curves is not None:
            self.curves = [v[order] for v in self.curves]


def calibrated(rows, slopes, shifts):
    """Rows whose objectness times class is moved along a curve for each class; the class keeps the
    share of it that makes objectness the highest of them."""
    p = (rows[..., 4:5] * rows[..., 5:]).clamp(1e-6, 1 - 1e-6)
    p = torch.sigmoid((p / (1 - p)).log() * slopes + shifts).clamp(min=1e-6)  # below, runtimes differ
    best = p.max(2, keepdim=True).values
    return torch.cat([rows[..., :4], best, p / best], 2)
