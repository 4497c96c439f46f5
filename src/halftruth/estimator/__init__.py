"""A scikit-learn classifier for features and incomplete labels.

`classifier.py` has the estimator, `targets.py` the checks of what is passed to `fit`, and
`training.py` the three ways to fit: an ensemble, one model, a model of many classes.
"""

from halftruth.extras import needs_extras

with needs_extras("HalftruthClassifier"):
    from halftruth.estimator.classifier import HalftruthClassifier

__all__ = ["HalftruthClassifier"]
