"""Scores that mean something: what a detector calls 0.6 shall be right six times of ten.

The tracker follows from fixed scores on, whatever the class; a network's own scores are lower for
some classes than for others and for small objects. So each class has its scores moved along a
logistic curve (Platt scaling) that is fitted to pictures with labels; their order stays.
"""

import numpy as np

import measure


def fit(pictures, classes):
    """The curves' slopes and shifts; pictures as measure.matched takes them. A class with little to go by keeps its scores."""
    slopes, shifts = np.ones(classes, np.float32), np.zeros(classes, np.float32)
    for c in range(classes):
        scores, hits, _ = measure.matched(pictures, c)
        if hits.sum() < 30:
            continue
        p = scores.clip(1e-6, 1 - 1e-6)
        x = np.stack([np.log(p / (1 - p)), np.ones(len(p))], 1)
        w = np.array([1.0, 0.0])
        for _ in range(30):  # Newton's method, drawn a little towards leaving the scores alone
            y = 1 / (1 + np.exp(-x @ w))
            slope = x.T @ (y - hits) + (w - [1, 0])
            curve = (x * (y * (1 - y))[:, None]).T @ x + np.eye(2)
            w = w - np.linalg.solve(curve, slope)
        if w[0] > 0.1:
            slopes[c], shifts[c] = w
    return slopes, shifts


def table(pictures, names, slopes, shifts, at=0.6):
    """Prints what is found, and how much of it is right, from the score at on, before and after."""
    print(f"from a score of {at}:  precision  recall, as the network tells;  precision  recall, calibrated")
    for c, name in enumerate(names):
        scores, hits, total = measure.matched(pictures, c)
        p = scores.clip(1e-6, 1 - 1e-6)
        after = 1 / (1 + (p / (1 - p)) ** -slopes[c] * np.exp(-shifts[c]))
        both = []
        for s in (scores, after):
            sure = s >= at
            both += [hits[sure].mean() if sure.any() else float("nan"), hits[sure].sum() / max(total, 1)]
        print(f"{name:12s} " + "  ".join(f"{v:.3f}" for v in both), flush=True)
