"""Average precision as everybody counts it: greedy matching by score, 101
recall points, objects marked as not scored are neither asked nor punished."""

import numpy as np


def overlaps(a, b):
    lo = np.maximum(a[:, None, :2], b[None, :, :2])
    hi = np.minimum(a[:, None, 2:4], b[None, :, 2:4])
    inter = np.clip(hi - lo, 0, None).prod(2)
    area = lambda v: (v[:, 2] - v[:, 0]) * (v[:, 3] - v[:, 1])
    return inter / (area(a)[:, None] + area(b)[None] - inter + 1e-9)


def suppress(boxes, scores, limit=0.6):
    order, keep = np.argsort(-scores), []
    while len(order):
        i, order = order[0], order[1:]
        keep.append(i)
        order = order[overlaps(boxes[i : i + 1], boxes[order])[0] <= limit]
    return keep


def detections(rows, corners, strides, floor=0.01):
    """Rows of one picture, as the exported network gives them, to
    x0, y0, x1, y1, score, class, after suppression within each class."""
    scores = rows[:, 4:5] * rows[:, 5:]
    out = []
    for c in range(scores.shape[1]):
        pick = scores[:, c] > floor
        r, s = rows[pick], scores[pick, c]
        centre = (r[:, :2] + corners[pick]) * strides[pick]
        half = np.exp(r[:, 2:4]) * strides[pick] / 2
        boxes = np.concatenate([centre - half, centre + half], 1)
        for i in suppress(boxes, s):
            out.append([*boxes[i], s[i], c])
    return np.array(out, np.float32).reshape(-1, 6)


def matched(pictures, c, threshold=0.5):
    """Scores of the detections of class c, whether each is right, and how many objects there are.
    pictures is a list of (detections, truth); truth has rows of x0, y0, x1, y1, class, scored."""
    scores, hits, total = [], [], 0
    for found, truth in pictures:
        d = found[found[:, 5] == c]
        d = d[np.argsort(-d[:, 4])]
        t = truth[truth[:, 4] == c]
        asked = t[:, 5] > 0
        total += int(asked.sum())
        free = np.ones(len(t), bool)
        # What is not scored may excuse any class: only its outline is known.
        rest = truth[truth[:, 5] == 0]
        iou = overlaps(d[:, :4], t[:, :4])
        excuse = overlaps(d[:, :4], rest[:, :4])
        for i in range(len(d)):
            m = iou[i] * (free & asked)
            j = int(m.argmax()) if len(m) else -1
            if j >= 0 and m[j] >= threshold:
                free[j] = False
                scores.append(d[i, 4])
                hits.append(1)
            elif len(rest) == 0 or excuse[i].max() < threshold:
                scores.append(d[i, 4])
                hits.append(0)
    return np.array(scores), np.array(hits), total


def average_precision(pictures, classes, threshold=0.5):
    """One figure a class; pictures as matched takes them."""
    result = []
    for c in range(classes):
        scores, hits, total = matched(pictures, c, threshold)
        if total == 0:
            result.append(float("nan"))
            continue
        order = np.argsort(-scores, kind="stable")
        tp = np.cumsum(hits[order]) if len(order) else np.zeros(0)
        recall, precision = tp / total, tp / np.arange(1, len(order) + 1)
        precision = np.maximum.accumulate(precision[::-1])[::-1]
        ap = 0.0
        for r in np.linspace(0, 1, 101):
            k = np.searchsorted(recall, r)
            ap += precision[k] if k < len(precision) else 0
        result.append(ap / 101)
    return result
