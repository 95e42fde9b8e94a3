"""Which cell answers for which object (SimOTA), and what its answer costs."""

import torch
from torch.nn import functional as F

from network import decode


def overlap(a, b):
    """Intersection over union of boxes a[..., 4] and b[..., 4], broadcast."""
    lo = torch.max(a[..., :2], b[..., :2])
    hi = torch.min(a[..., 2:], b[..., 2:])
    inter = (hi - lo).clamp(min=0).prod(-1)
    area = lambda v: (v[..., 2:] - v[..., :2]).clamp(min=0).prod(-1)
    return inter / (area(a) + area(b) - inter + 1e-9)


def generalised(a, b):
    """Generalised intersection over union of matching boxes."""
    iou = overlap(a, b)
    lo, hi = torch.min(a[..., :2], b[..., :2]), torch.max(a[..., 2:], b[..., 2:])
    hull = (hi - lo).prod(-1) + 1e-9
    area = lambda v: (v[..., 2:] - v[..., :2]).prod(-1)
    union = (area(a) + area(b)) / (1 + iou).clamp(min=1e-9)
    return iou - (hull - union) / hull


@torch.no_grad()
def assign(boxes, raw, corners, strides, gt, kind, real, square=0.0):
    """Returns, for each cell of each picture, the object it answers for or -1,
    and its overlap. gt is [B, G, 4], kind [B, G], real marks the filled rows.
    Where boxes miss an object, a square of six strides stands in for the cell's,
    for as much of its overlap as square says."""
    centre = (corners + 0.5) * strides
    x, y = centre[:, 0], centre[:, 1]
    inside = (
        (x > gt[..., 0:1]) & (x < gt[..., 2:3]) & (y > gt[..., 1:2]) & (y < gt[..., 3:4])
    )
    mid = (gt[..., :2] + gt[..., 2:]) / 2
    reach = 1.5 * strides[:, 0]
    close = ((x - mid[..., 0:1]).abs() < reach) & ((y - mid[..., 1:2]).abs() < reach)
    may = (inside | close) & real[..., None]
    iou = overlap(boxes[:, None], gt[:, :, None])
    if square:
        fixed = torch.cat([centre - 3 * strides, centre + 3 * strides], 1)
        iou = torch.maximum(iou, square * overlap(fixed[None, None], gt[:, :, None]))
    iou = iou * may
    prob = (raw[..., 5:].sigmoid() * raw[..., 4:5].sigmoid()).sqrt()
    p = torch.gather(prob, 2, kind[:, None].expand(-1, prob.shape[1], -1)).transpose(1, 2)
    cost = -torch.log(p + 1e-6) - 3 * torch.log(iou + 1e-6)
    cost = cost + 1e4 * ~(inside & close) + 1e7 * ~may
    k = iou.topk(min(10, iou.shape[2]), 2).values.sum(2).clamp(min=1).int()
    order = cost.topk(10, 2, largest=False)
    chosen = torch.zeros_like(may)
    keep = (torch.arange(10, device=k.device) < k[..., None]) & (order.values < 1e6)
    chosen.scatter_(2, order.indices, keep)
    cost = cost.masked_fill(~chosen, 1e9)
    best = cost.min(1)
    owner = torch.where(best.values < 1e6, best.indices, torch.full_like(best.indices, -1))
    won = torch.gather(iou, 1, owner.clamp(min=0)[:, None])[:, 0]
    return owner, won


def loss(raw, corners, strides, gt, kind, real, skip, graded=True):
    """The loss of a batch. skip [B, K, 4] are places where nothing is asked.
    graded asks for a class score that says how well the box fits, as YOLOX does;
    otherwise it says only how sure the class is."""
    boxes = decode(raw, corners, strides)
    owner, won = assign(boxes.detach(), raw.detach(), corners, strides, gt, kind, real)
    mine = owner >= 0
    n = mine.sum().clamp(min=1)

    centre = (corners + 0.5) * strides
    lost = (
        (centre[:, 0] > skip[..., 0:1]) & (centre[:, 0] < skip[..., 2:3])
        & (centre[:, 1] > skip[..., 1:2]) & (centre[:, 1] < skip[..., 3:4])
    ).any(1)
    asked = mine | ~lost
    obj = F.binary_cross_entropy_with_logits(raw[..., 4], mine.float(), reduction="none")
    obj = (obj * asked).sum() / n

    who = owner.clamp(min=0)
    target = torch.gather(gt, 1, who[..., None].expand(-1, -1, 4))[mine]
    box = (1 - generalised(boxes[mine], target)).sum() / n
    label = F.one_hot(torch.gather(kind, 1, who)[mine], raw.shape[2] - 5).float()
    if graded:
        label = label * won[mine][:, None].clamp(min=0.3)
    cls = F.binary_cross_entropy_with_logits(raw[..., 5:][mine], label, reduction="sum") / n
    return 5 * box + obj + cls, (float(box), float(obj), float(cls), float(n))


BELIEF = 0.4  # how much a teacher's opinion counts beside a label


def taught(raw, corners, strides, owner, gt, kind, rows, trust):
    """The loss of a batch whose cells have their objects already (owner [B, N]; -1: none) and
    about which a teacher has an opinion: rows [B, N, 1 + classes], its objectness and classes.
    trust [B] is 1 where the teacher knows such pictures and 0 where only the labels count."""
    mine = owner >= 0
    n = mine.sum().clamp(min=1)
    belief = BELIEF * trust[:, None]
    seen = rows[..., 0] * rows[..., 1:].max(-1).values
    obj = F.binary_cross_entropy_with_logits(
        raw[..., 4], torch.lerp(mine.float(), seen, belief.expand_as(seen)), reduction="sum") / n

    picture, cell = mine.nonzero(as_tuple=True)
    who = owner[picture, cell]
    boxes = decode(raw[picture, cell], corners[cell], strides[cell])
    target = gt[picture, who]
    box = (1 - generalised(boxes, target)).sum() / n
    fit = overlap(boxes.detach(), target).clamp(min=0.3)
    label = F.one_hot(kind[picture, who], raw.shape[2] - 5).float() * fit[:, None]
    label = torch.lerp(label, rows[picture, cell, 1:], belief[picture])
    cls = F.binary_cross_entropy_with_logits(raw[picture, cell, 5:], label, reduction="sum") / n
    return 5 * box + obj + cls, (float(box), float(obj), float(cls), float(n))
