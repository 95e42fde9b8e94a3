"""The street detector's network: about a million parameters, blocks that train
as three branches and run as one convolution, a neck that goes up and down, and
the same output as the demo detector's (network.py)."""

import copy

import torch
from torch import nn
from torch.nn import functional as F

from network import Conv, Head


class Rep(nn.Module):
    """3x3 + 1x1 + identity, each normalised; fuse makes one convolution of them."""

    def __init__(self, cin, cout, stride=1):
        super().__init__()
        self.stride = stride
        self.three = Conv(cin, cout, 3, stride, act=False)
        self.one = Conv(cin, cout, 1, stride, act=False)
        self.same = nn.BatchNorm2d(cin, eps=1e-3, momentum=0.03) if cin == cout and stride == 1 else None
        self.whole = None

    def forward(self, x):
        if self.whole is not None:
            return F.relu(self.whole(x))
        y = self.three(x) + self.one(x)
        if self.same is not None:
            y = y + self.same(x)
        return F.relu(y)

    def fuse(self):
        conv = self.three[0]
        whole = nn.Conv2d(conv.in_channels, conv.out_channels, 3, self.stride, 1)
        weight, bias = folded(conv.weight, self.three[1])
        w, b = folded(self.one[0].weight, self.one[1])
        weight, bias = weight + F.pad(w, [1, 1, 1, 1]), bias + b
        if self.same is not None:
            eye = torch.eye(conv.in_channels).view(conv.in_channels, conv.in_channels, 1, 1)
            w, b = folded(eye, self.same)
            weight, bias = weight + F.pad(w, [1, 1, 1, 1]), bias + b
        whole.weight, whole.bias = nn.Parameter(weight), nn.Parameter(bias)
        self.whole = whole
        self.three = self.one = self.same = None


def folded(weight, norm):
    """A convolution's weight and bias with the normalisation after it folded in."""
    k = norm.weight / (norm.running_var + norm.eps).sqrt()
    return (weight * k.view(-1, 1, 1, 1)).detach(), (norm.bias - norm.running_mean * k).detach()


class Part(nn.Module):
    """Half of the channels go through the blocks, half pass by."""

    def __init__(self, cin, cout, depth):
        super().__init__()
        half = cout // 2
        self.a, self.b = Conv(cin, half, 1), Conv(cin, half, 1)
        self.body = nn.Sequential(*[Rep(half, half) for _ in range(depth)])
        self.join = Conv(2 * half, cout, 1)

    def forward(self, x):
        return self.join(torch.cat([self.body(self.a(x)), self.b(x)], 1))


def stage(cin, cout, depth):
    return nn.Sequential(Rep(cin, cout, 2), Part(cout, cout, depth))


class StreetDetector(nn.Module):
    def __init__(self, classes, widths=(16, 32, 60, 104, 176), depths=(1, 2, 2, 2), neck=64, head=48):
        super().__init__()
        w0, w1, w2, w3, w4 = widths
        self.classes = classes
        self.stem = Rep(3, w0, 2)
        self.c2, self.c3 = stage(w0, w1, depths[0]), stage(w1, w2, depths[1])
        self.c4, self.c5 = stage(w2, w3, depths[2]), stage(w3, w4, depths[3])
        self.wide = Conv(w4 * 3, w4, 1)
        self.l5, self.l4, self.l3 = Conv(w4, neck, 1), Conv(w3, neck, 1), Conv(w2, neck, 1)
        self.up4, self.up3 = Part(2 * neck, neck, 1), Part(2 * neck, neck, 1)
        self.down3, self.down4 = Conv(neck, neck, 3, 2), Conv(neck, neck, 3, 2)
        self.out4, self.out5 = Part(2 * neck, neck, 1), Part(2 * neck, neck, 1)
        self.heads = nn.ModuleList([Head(neck, w, classes) for w in (head - 16, head, head)])

    def maps(self, x):
        x = self.c2(self.stem(x * (1 / 128.0) - 1.0))
        c3 = self.c3(x)
        c4 = self.c4(c3)
        c5 = self.c5(c4)
        pooled = F.max_pool2d(c5, 5, 1, 2)
        c5 = self.wide(torch.cat([c5, pooled, F.max_pool2d(pooled, 5, 1, 2)], 1))
        up = lambda v: F.interpolate(v, scale_factor=2.0, mode="nearest")
        p5 = self.l5(c5)
        p4 = self.up4(torch.cat([up(p5), self.l4(c4)], 1))
        p3 = self.up3(torch.cat([up(p4), self.l3(c3)], 1))
        p4 = self.out4(torch.cat([self.down3(p3), p4], 1))
        p5 = self.out5(torch.cat([self.down4(p4), p5], 1))
        return [head(p) for head, p in zip(self.heads, (p3, p4, p5))]

    def forward(self, x):
        rows = []
        for m in self.maps(x):
            m = torch.cat([m[:, :4], torch.sigmoid(m[:, 4:])], 1)
            rows.append(m.flatten(2).permute(0, 2, 1))
        return torch.cat(rows, 1)

    def fused(self):
        """A copy for running: the same answers from fewer operations."""
        net = copy.deepcopy(self).float().cpu().eval()
        for m in list(net.modules()):
            if isinstance(m, Rep):
                m.fuse()
        return net
