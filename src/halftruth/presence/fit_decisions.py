"""From out-of-sample logits and incomplete labels to probabilities and decisions."""

from typing import Any

import numpy as np

from halftruth.presence.decisions import Decisions, Rule, decide
from halftruth.presence.probabilities import Probabilities, fit_probabilities
from halftruth.presence.propensity import LabelBias, choose_possible, choose_propensity


def fit_decisions(
    labels: np.ndarray,
    rows: np.ndarray,
    logits: np.ndarray,
    *,
    shown: np.ndarray,
    rule: str | Rule,
    bias: LabelBias | None = None,
    exponent: float | None = None,
    verified: np.ndarray | None = None,
    **known: Any,
) -> tuple[Probabilities, Decisions, np.ndarray | None]:
    """Fit the model of labelling to some rows, and choose thresholds by the rule.

    `labels` (N, K): of all rows that were learnt from. `rows`, `logits`: those that the model was
    not fitted to, with their logits. `shown` (K,): PRESENT labels of the rows that it was fitted
    to. `bias`, `exponent`: what is known of the choice of labels, see `choose_propensity`.
    `verified`: labels of `rows` that people have verified. `known`: labels_per_row, prevalence,
    complete and seed of `fit_probabilities`. Also returns the propensities of the classes.
    """
    propensity = choose_propensity(labels, bias, exponent)
    probabilities = fit_probabilities(
        labels[rows], logits, verified=verified, propensity=propensity,
        possible=choose_possible(labels, bias, exponent), **known,
    )  # fmt: skip
    return probabilities, decide(probabilities(logits), shown, rule), propensity
