"""A scikit-learn classifier for features and incomplete labels.

`classifier.py` has the estimator, `targets.py` the checks of what is passed to `fit`, and
`training.py` the three ways to fit: an ensemble, one model, a model of many classes.
"""

try:
    from halftruth.estimator.classifier import HalftruthClassifier
except ImportError as error:
    if (error.name or "").partition(".")[0] != "sklearn":
        raise
    raise ImportError(
        'HalftruthClassifier needs scikit-learn 1.6 or later: pip install "halftruth[train]"'
    ) from error

__all__ = ["HalftruthClassifier"]
