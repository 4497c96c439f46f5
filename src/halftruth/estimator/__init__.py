"""A scikit-learn classifier for features and incomplete labels.

`classifier.py` has the estimator, `targets.py` the checks of what is passed to `fit`, `training.py`
the three ways to fit (an ensemble, one model, a model of many classes), and `out_of_sample.py` the
scores of any other classifier.
"""

from halftruth.extras import needs_extras

with needs_extras("HalftruthClassifier"):
    from halftruth.estimator.classifier import HalftruthClassifier
    from halftruth.estimator.out_of_sample import score_out_of_sample

__all__ = ["HalftruthClassifier", "score_out_of_sample"]
