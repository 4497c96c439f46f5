"""A scikit-learn classifier for features and incomplete labels.

`classifier.py` has the estimator, `targets.py` the checks of what is passed to `fit`, `training.py`
the three ways to fit (an ensemble, one model, a model of many classes), `out_of_sample.py` the
scores of any other classifier, and `scorer.py` the scorers for scikit-learn's searches.
"""

from halftruth.extras import needs_extras

with needs_extras("HalftruthClassifier"):
    from halftruth.estimator.classifier import HalftruthClassifier
    from halftruth.estimator.out_of_sample import score_out_of_sample
    from halftruth.estimator.scorer import make_scorer

__all__ = ["HalftruthClassifier", "make_scorer", "score_out_of_sample"]
