"""The same metrics as plain loops, written from their definitions only."""

import math

import numpy as np


def average_precision(scores, labels, ignore_unknown=False):
    """One precision per positive: samples that score at least as high, and positives among them."""
    values = []
    for column in range(scores.shape[1]):
        pairs = [
            (score, label)
            for score, label in zip(scores[:, column], labels[:, column], strict=True)
            if not (ignore_unknown and label == 0)
        ]
        precisions = []
        for score, label in pairs:
            if label == 1:
                above = [other for other in pairs if other[0] >= score]
                precisions.append(sum(y == 1 for _, y in above) / len(above))
        values.append(math.fsum(precisions) / len(precisions) if precisions else math.nan)
    return np.array(values)


def confusion(predicted, labels, ignore_unknown=False):
    """tp, fp, fn, tn per class, (K, 4), and of "no class at all", (4,)."""
    samples, classes = labels.shape
    counts = np.zeros((classes, 4), dtype=int)
    normal = np.zeros(4, dtype=int)
    for i in range(samples):
        for k in range(classes):
            if ignore_unknown and labels[i, k] == 0:
                continue
            counts[k, _cell(bool(predicted[i, k]), labels[i, k] == 1)] += 1
        has_present = any(labels[i, k] == 1 for k in range(classes))
        has_unknown = any(labels[i, k] == 0 for k in range(classes))
        if ignore_unknown and has_unknown and not has_present:
            continue
        normal[_cell(not any(predicted[i]), not has_present)] += 1
    return counts, normal


def _cell(predicted, present):
    if predicted:
        return 0 if present else 1
    return 2 if present else 3


def cost_sensitive_hamming(predicted, labels, ignore_unknown=False):
    rows = []
    for said, truth in zip(predicted, labels, strict=True):
        missed = [not p for p, y in zip(said, truth, strict=True) if y == 1]
        alarms = [
            bool(p)
            for p, y in zip(said, truth, strict=True)
            if y == -1 or (y == 0 and not ignore_unknown)
        ]
        if missed or alarms:
            rows.append(sum(sum(part) / len(part) for part in (missed, alarms) if part))
    return math.fsum(rows) / len(rows)


def best_f_beta(scores, labels, beta, ignore_unknown=False):
    """The highest F_β per class over all thresholds of the form score >= s."""
    values = []
    for column in range(scores.shape[1]):
        use = labels[:, column] != 0 if ignore_unknown else np.ones(len(labels), dtype=bool)
        s, y = scores[use, column], labels[use, column] == 1
        candidates = [0.0]
        for threshold in set(s.tolist()):
            hit = s >= threshold
            tp, fp, fn = (hit & y).sum(), (hit & ~y).sum(), (~hit & y).sum()
            candidates.append((1 + beta**2) * tp / ((1 + beta**2) * tp + beta**2 * fn + fp))
        values.append(max(candidates))
    return np.array(values)
