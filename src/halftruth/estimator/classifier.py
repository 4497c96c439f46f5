"""The estimator: its parameters, `fit`, and predictions."""

import inspect
import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from scipy.sparse import csr_matrix
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from halftruth.data.check import question_features
from halftruth.data.errors import refuse_twice
from halftruth.data.features import check_features
from halftruth.data.hints import list_hints, read_hints
from halftruth.data.memory import check_memory
from halftruth.data.readers.label_lists import question_classes
from halftruth.data.readers.label_table import (
    question_columns,
    question_weights,
    refuse_labels_as_weights,
)
from halftruth.data.splits import check_groups, question_groups
from halftruth.data.wide_matrix import MOST_FEATURES
from halftruth.estimator import targets, training
from halftruth.estimator.training import Fitted, TrainingData
from halftruth.labels import MANY_CLASSES, UNKNOWN
from halftruth.metrics import mean_average_precision
from halftruth.models import Classifier
from halftruth.presence.decisions import Decisions, fit_decisions, parse_rule
from halftruth.presence.decisions import decide as choose_thresholds
from halftruth.presence.probabilities import Probabilities, check_labels_per_row
from halftruth.presence.propensity import LabelBias
from halftruth.seeds import check_seed
from halftruth.train.config import Config, ConfigError, resolve_method
from halftruth.train.ensemble.hints import HintWeights, describe_hints, fit_hints
from halftruth.train.inputs.batches import apply_in_blocks, is_sparse
from halftruth.train.inputs.feature_inputs import warn_of_far_columns
from halftruth.train.label_priors import parse_label_priors
from halftruth.train.settings import AUTO, ENSEMBLE, MANY_CLASSES_METHOD, ONE_MODEL, SETTINGS

_FLOATS = {"accept_sparse": "csr", "dtype": (np.float64, np.float32)}
# Members need dense features, except the linear one: with few columns but very many rows, a sparse
# matrix is trained by batches instead.
_MOST_DENSE = 200_000_000
# Labels that are predicted at once.
_BLOCK = 16_000_000
# A level that people give is rounded.
_ROUNDED = 0.99
_OF_MANY_ROWS: dict[str, Any] = {"method": "swan", "batch_size": 1024, "ema": 0.99}


class HalftruthClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Multi-label classifier on features whose labels are incomplete.

    Labels are +1 (present), 0 (unknown) and -1 (absent). In a multi-hot matrix of 0 and 1 the zeros
    are therefore unknown; where they are verified, use `halftruth.labels.from_zero_absent(y)`.
    `score` is the mean average precision (mAP), not the accuracy of whole rows.

    Parameters
    ----------
    method : str, Loss or subclass of Loss, default="auto"
        Loss: a name in `halftruth.losses.names()`, "package.module:Class", a class, or a loss
        that was created with its arguments. "auto" fits an "ensemble", or "many-classes" if there
        are more than 1,000; the settings of one model have no effect on these. A sparse matrix of
        too many rows for an ensemble is trained with "swan". `plan_` says which it was.
    options : dict, default=None
        Arguments of the loss, where `method` is not built yet.
    quality : {"fast", "default"}, default="default"
        Of the ensemble: "fast" leaves out its slowest member, the MLP.
    hidden : int, default=0
        Width of a hidden layer. 0: a linear model.
    dropout : float, default=0.0
        Dropout before the last layer.
    epochs, batch_size, lr, weight_decay, optimizer, schedule, ema
        As in `halftruth train`.
    val : float, default=0.0
        Share of the rows that is held out to choose the epoch.
    patience : int, default=None
        Stop after this many epochs without improvement on the held-out rows.
    members : list of str, default=None
        Members of the ensemble of "auto": "linear", "mlp", "forest", "neighbours". None: all that
        suit the number of rows.
    decide : str, default="f1"
        Rule of `predict`: "f1", "macro-f1" (highest expected F1 per class), "f2", "precision=0.9",
        "recall=0.9", "threshold=0.5", "score=0.5" (the same before calibration), "top=3",
        "count" (as many per class as estimated), or "cost=5" (a missed label costs 5 times as
        much as a wrong one).
    labels_per_row : float, default=None
        Mean number of present classes per row, if you know it. None: estimated.
    unlabelled_rows : {"auto", "kept", "dropped"}, default="auto"
        Whether rows without a label are in `y` ("kept"), or were left out ("dropped"). "auto": left
        out if every row has one and some have several.
    prevalence : dict, default=None
        Share of rows per class (by its name in `classes_`), for classes where you know it.
    complete_classes : list, default=None
        Classes of which every present label is shown, so that their zeros are absent.
    random_state : int, RandomState or None, default=0
        Seed of initial weights, row order and held-out rows; a number is the `seed` of
        `halftruth train`.
    device : {"cpu", "cuda", "mps", "auto"}, default="cpu"
        Where to train. Predictions are made on the CPU in double precision.
    verbose : bool, default=False
        Print what "auto" is fitting.

    Attributes
    ----------
    classes_ : array of shape (n_classes,)
        Column names of `y` if it is a DataFrame, otherwise 0, 1, 2, ...
    thresholds_ : array of shape (n_classes,)
        Threshold on the probability per class.
    not_predicted_ : array of shape (n_not_predicted,)
        Classes that are never predicted, since no label shows them.
    probabilities_ : halftruth.presence.probabilities.Probabilities
        The model of labelling: prevalence per class with its interval, labels per row, and the
        curves behind `predict_proba`.
    hints_ : halftruth.train.ensemble.hints.HintWeights or None
        What the hints of `fit` are worth per class.
    label_bias_ : LabelBias or None
        The test of whether frequent classes are named first; None where labels cannot tell.
    sparse_output_ : bool
        Whether `fit` was given a sparse `y`, so that `predict` returns a sparse matrix.
    plan_ : dict
        What was fitted: `HalftruthClassifier(**plan_)` fits the same again.
    reasons_ : list of str
        For the ensemble, the table of its members.
    best_epoch_ : int
        Epoch whose weights are used, counted from 1.
    n_iter_ : int
        Number of epochs trained.
    model_ : halftruth.models.Classifier
        The network, with the means and standard deviations of the features.

    Examples
    --------
    >>> X = np.array([[0.0, 1.0], [1.0, 0.0], [1.0, 1.0], [0.0, 0.0]] * 10)
    >>> y = np.array([[0, 1], [1, 0], [1, 0], [0, 0]] * 10)
    >>> model = HalftruthClassifier("em", epochs=40, lr=0.03).fit(X, y)
    >>> model.predict([[1.0, 0.0], [0.0, 1.0]])
    array([[1, 0],
           [0, 1]])
    """

    def __init__(
        self,
        method: object = "auto",
        *,
        options: Mapping[str, object] | None = None,
        quality: str = "default",
        hidden: int = 0,
        dropout: float = 0.0,
        epochs: int = 20,
        batch_size: int = 32,
        lr: float = 1e-3,
        weight_decay: float = 0.0,
        optimizer: str = "adam",
        schedule: str = "one-cycle",
        ema: float = 0.0,
        val: float = 0.0,
        patience: int | None = None,
        members: Sequence[str] | str | None = None,
        decide: str = "f1",
        labels_per_row: float | None = None,
        unlabelled_rows: str = "auto",
        prevalence: Mapping[object, float] | None = None,
        complete_classes: Sequence[object] | None = None,
        random_state: object = 0,
        device: str = "cpu",
        verbose: bool = False,
    ) -> None:
        self.method = method
        self.options = options
        self.quality = quality
        self.hidden = hidden
        self.dropout = dropout
        self.epochs = epochs
        self.batch_size = batch_size
        self.lr = lr
        self.weight_decay = weight_decay
        self.optimizer = optimizer
        self.schedule = schedule
        self.ema = ema
        self.val = val
        self.patience = patience
        self.members = members
        self.decide = decide
        self.labels_per_row = labels_per_row
        self.unlabelled_rows = unlabelled_rows
        self.prevalence = prevalence
        self.complete_classes = complete_classes
        self.random_state = random_state
        self.device = device
        self.verbose = verbose

    def fit(
        self,
        X: Any,
        y: Any,
        groups: Any = None,
        hints: object = None,
        complete_rows: object = None,
        sample_weight: Any = None,
    ) -> "HalftruthClassifier":
        """Train on features and incomplete labels.

        Parameters
        ----------
        X : array, sparse matrix or DataFrame of shape (n_samples, n_features)
            Features. They are standardised per column. Of a sparse matrix with more than 2,048
            columns (the terms of a text), the linear member of the ensemble takes all columns as
            they are, and the others those that are most associated with a label.
        y : array, sparse matrix or DataFrame of shape (n_samples, n_classes)
            Labels: 1 present, 0 unknown, -1 absent. NaN, None and pandas NA are unknown, too. If it
            is sparse, `predict` returns a sparse matrix, too, as other classifiers of scikit-learn
            do. The method "many-classes" (docs/large.md) keeps it sparse.
        groups : array of shape (n_samples,), default=None
            Rows with the same value (the images of one patient) are held out together.
        hints : array or DataFrame of shape (n_samples, n_classes), or a list of these, default=None
            Scores of anything else, such as another model or keyword rules; NaN where there is
            none. A DataFrame may have some of the classes. What a hint is worth is learnt per
            class; pass the same hints of new rows to `predict`.
        complete_rows : array of int or of bool, default=None
            Rows that are labelled completely (row numbers from 0, or a mask): their unknown labels
            are absent. They also tell which labels the other rows leave out.
        sample_weight : array of shape (n_samples,) or (n_samples, n_classes), default=None
            How much the labels of a row, or single labels, count in training. Only the ratios
            matter; a label of weight 0 is unknown, and a row of weight 0 is left out. Forests and
            neighbours use the mean weight of a row. With scikit-learn's metadata routing:
            `set_fit_request(sample_weight=True)`.

        Returns
        -------
        self : HalftruthClassifier
        """
        names = getattr(y, "columns", None)
        refuse_twice([] if names is None else names, "y")
        targets.check_same_order(X, y)
        targets.refuse_dates(X)
        with targets.explain(X, y):
            y = targets.fill_missing(y)
            X, y = validate_data(self, X, y, multi_output=True, ensure_min_samples=2, **_FLOATS)
        if not is_sparse(X):
            check_features(X, place="X")
        if groups is not None:
            groups = check_groups(groups, X.shape[0])
            self._warn([f"groups: {text}" for text in question_groups(groups)])
        weights = targets.check_sample_weight(sample_weight, X, y)
        if weights is not None and not is_sparse(y):
            refuse_labels_as_weights(weights, y, "sample_weight")
            self._warn(question_weights(weights, "sample_weight"))
        # Rows of weight 0 count nowhere, not in folds and not in the model of labelling either.
        counted = np.arange(X.shape[0]) if weights is None else targets.find_counted(weights)
        config = self._make_config()
        config = self._choose_plan(config, X, y.shape[1] if np.ndim(y) == 2 else 1)
        parse_rule(self.decide, y.shape[1] if np.ndim(y) == 2 else 1)
        self.plan_ = self._describe_plan(config)
        self._warn([] if names is None else question_classes(names))
        self.sparse_output_ = is_sparse(y)
        self.hints_: HintWeights | None = None
        if config.method == MANY_CLASSES_METHOD:
            targets.refuse_with_many_classes(
                hints=hints, complete_rows=complete_rows, members=self.members,
                prevalence=self.prevalence, complete_classes=self.complete_classes,
                quality=None if self.quality == "default" else self.quality, weights=weights,
            )  # fmt: skip
            data = TrainingData(X, targets.to_sparse_labels(y), groups, weights).select(counted)
            targets.check_any_present(data.y.count_per_row(), len(data.y))
            names = np.arange(data.y.classes) if names is None else np.asarray(names)
            parse_label_priors(data.y, names, {}, (), self.labels_per_row)
            found = training.fit_sparse_labels(data, config, self._log)
            self._keep(found[0], names)
            self.probabilities_, self._held_out = found[1], found[0].logits
            self._shown = self.probabilities_.shown
            self._set_decisions(found[2])
            return self
        with targets.explain(X, y):
            y = targets.to_labels(y)
        if complete_rows is not None:
            y = targets.mark_complete_rows(y, complete_rows)
        if weights is not None:
            y = np.where(weights > 0, y, np.int8(UNKNOWN))
        targets.check_any_present(y > 0, len(y))
        names = np.arange(y.shape[1]) if names is None else np.asarray(names)
        self._warn(question_columns(names, y))
        knowledge = self.prevalence or {}, self.complete_classes or (), self.labels_per_row
        shares, complete = parse_label_priors(y, names, *knowledge)
        columns = getattr(self, "feature_names_in_", None)
        self._warn(question_features(X, y, names, columns, "X", copies=groups is None))
        data = TrainingData(X, y, groups, weights).select(counted)
        if config.method == ENSEMBLE:
            fitted = training.fit_members(data, config, self.members, self._log)
        else:
            fitted = training.fit_one_model(data, config, self.val)
        self._keep(fitted, names)
        logits = self._fit_hints(y, replace(fitted, rows=counted[fitted.rows]), hints)
        self._fit_decisions(data.y, fitted.rows, logits, shares, complete, config.seed)
        return self

    def decision_function(self, X: object, hints: object = None) -> np.ndarray:
        """Return the log-odds of P(present | x), an array of shape (n_samples, n_classes).

        The logits of the network before calibration are `model_(features)`. Without the `hints` of
        training, the model alone predicts.
        """
        check_is_fitted(self)
        x = validate_data(self, X, reset=False, **_FLOATS)
        self._check_memory(x.shape[0], 24.0)
        return self._score_rows(x, hints)

    def _score_rows(self, x: Any, hints: object) -> np.ndarray:
        """Return the log-odds of checked rows."""
        if not is_sparse(x):
            warn_of_far_columns(self.model_, x, getattr(self, "feature_names_in_", None), 4)
        curves = self.probabilities_
        logits = self._with_hints(apply_in_blocks(self.model_, x).numpy(), hints)
        return curves.offset + curves.slope * logits

    def predict_proba(
        self, X: object, hints: object = None, *, labels_per_row: float | None = None
    ) -> np.ndarray:
        """Return P(present | x) per class, (n_samples, n_classes); rows do not add up to 1.

        The probabilities are calibrated by the model of labelling, without complete labels, or by
        `labels_per_row`, if that number is known.
        """
        z = self.decision_function(X, hints)
        return self.probabilities_.recalibrate(z, self._at_level(labels_per_row))

    def predict(
        self,
        X: object,
        hints: object = None,
        *,
        decide: str | None = None,
        labels_per_row: float | None = None,
    ) -> np.ndarray:
        """Return 1 for the classes that a rule predicts, otherwise 0.

        decide: the rule; that of the constructor (or of `set_params`) by default. labels_per_row:
        the mean number of present classes, if it is known. Neither needs another fit. The result
        is an array of int, or a scipy CSR matrix if `fit` was given a sparse `y`.
        """
        check_is_fitted(self)
        known = self._at_level(labels_per_row)
        decisions = self._choose_decisions(decide or self.decide, known)
        infer = partial(self.probabilities_.recalibrate, known=known)
        x = validate_data(self, X, reset=False, **_FLOATS)
        count, size = x.shape[0], max(_BLOCK // len(self.classes_), 1)
        if not self.sparse_output_:
            self._check_memory(count, 8.0)
        # Hints name all rows at once.
        starts = [0] if hints is not None or count <= size else range(0, count, size)
        blocks = [x] if len(starts) == 1 else [x[at : at + size] for at in starts]
        found = [decisions(infer(self._score_rows(some, hints))).astype(int) for some in blocks]
        if self.sparse_output_:
            from scipy.sparse import csr_matrix, vstack

            return vstack([csr_matrix(one) for one in found], format="csr")
        return np.concatenate(found)

    def score(self, X: object, y: object, hints: object = None) -> float:
        """Return the mean average precision (mAP), 0 to 1; labels other than 1 count as absent.

        Columns of a DataFrame are matched by name.
        """
        check_is_fitted(self)
        targets.check_same_order(X, y)
        y = targets.order_columns(y, self.classes_)
        return mean_average_precision(
            self.decision_function(X, hints), targets.to_labels(targets.fill_missing(y))
        )

    def __sklearn_tags__(self) -> object:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.target_tags.multi_output, tags.target_tags.single_output = True, False
        tags.classifier_tags.multi_label, tags.classifier_tags.multi_class = True, False
        return tags

    # ------------------------------------------------------------------ settings

    def _make_config(self) -> Config:
        """Return the settings of training; all problems are in one error."""
        # A search over np.arange(...) passes NumPy numbers.
        given = {name: _to_python(value) for name, value in self.get_params().items()}
        for name in ("verbose", "prevalence", "complete_classes"):
            given.pop(name)
        state = given.pop("random_state")
        if state is None or isinstance(state, np.random.RandomState):
            seed = int(check_random_state(state).randint(2**31 - 1))
        else:
            # A number is the seed itself, as in `halftruth train --seed`.
            seed = check_seed(state, "random_state")
        problems = targets.find_problems(
            given.pop("members"), given.pop("val"), given["patience"], self.prevalence,
            self.complete_classes,
        )  # fmt: skip
        given = resolve_method(given, stored=False)
        settings = {**given, "options": given["options"] or {}, "head_lr": given["lr"]}
        config = Config(**settings, features=["X"], seed=seed)
        problems += [text for text in config.problems() if text.split(":")[0] in given]
        problems += self._find_unused(config)
        if problems:
            raise ConfigError(problems)
        return config

    def _find_unused(self, config: Config) -> list[str]:
        """Return a problem for each parameter that has no effect with the plan of `config`."""
        usual = inspect.signature(type(self)).parameters
        if not config.fits_ensemble:
            reason = f"method {config.method!r} fits no ensemble"
            given = (name for name in ("members", "quality"))
            given = (name for name in given if getattr(self, name) != usual[name].default)
            return [f"{name}: has no effect, since {reason}" for name in given]
        if self.members is not None and self.quality != "default":
            return ["quality: has no effect, since the members are named"]
        of_one_model = config.without_effect("epochs")
        return [
            f"{name}: has no effect, since {config.without_effect(name) or of_one_model}"
            for name in SETTINGS
            if name in usual
            and (name == "val" or config.without_effect(name))
            and getattr(self, name) != usual[name].default
        ]

    def _describe_plan(self, config: Config) -> dict[str, object]:
        """Return the parameters that fit the same again: the method, and what is not usual."""
        usual = inspect.signature(type(self)).parameters
        own = [name for name in usual if name in SETTINGS and ONE_MODEL in SETTINGS[name].only]
        changed = {name: getattr(config, name) for name in own if not config.fits_ensemble}
        changed = {name: v for name, v in changed.items() if v != usual[name].default}
        if config.fits_ensemble and self.quality != usual["quality"].default:
            changed["quality"] = self.quality
        return {"method": config.method, **changed, "options": config.options or None}

    def _choose_plan(self, config: Config, X: np.ndarray | csr_matrix, classes: int) -> Config:
        """Replace "auto" by the name and settings of what is fitted."""
        if not config.fits_ensemble:
            return config
        many = config.method == MANY_CLASSES_METHOD
        if many or (config.method == AUTO and classes > MANY_CLASSES):
            return replace(config, method=MANY_CLASSES_METHOD)
        wide = is_sparse(X) and X.shape[1] > MOST_FEATURES
        if not is_sparse(X) or wide or math.prod(X.shape) <= _MOST_DENSE:
            return replace(config, method=ENSEMBLE)
        if config.method == ENSEMBLE:
            raise ConfigError(
                [
                    "method: an ensemble needs dense features, and "
                    f"{X.shape[0]:,} x {X.shape[1]:,} are too many; give fewer rows, or name a "
                    "loss such as swan"
                ]
            )
        return replace(config, **_OF_MANY_ROWS)

    @property
    def _log(self) -> Callable[[str], None]:
        return print if self.verbose else lambda text: None

    # ------------------------------------------------------------------ steps of fit

    def _warn(self, texts: list[str]) -> None:
        for text in texts:
            warnings.warn(text, UserWarning, stacklevel=4)

    def _keep(self, fitted: Fitted, names: np.ndarray) -> None:
        self.model_: Classifier = fitted.model
        self.reasons_ = fitted.reasons
        self.label_bias_: LabelBias | None = fitted.label_bias
        self.n_iter_, self.best_epoch_ = fitted.epochs, fitted.best_epoch
        self.classes_ = names

    def _check_memory(self, rows: int, bytes_per_label: float) -> None:
        """Refuse an array of all rows and classes that does not fit."""
        count = len(self.classes_)
        check_memory(
            bytes_per_label * rows * count,
            f"an array of {rows:,} rows x {count:,} classes",
            "give fewer rows at a time, or fit with a sparse y: predict then returns a CSR matrix",
        )

    def _fit_hints(self, y: np.ndarray, fitted: Fitted, hints: object) -> np.ndarray:
        """Learn what hints are worth, and return the out-of-sample logits that use them."""
        if not (found := self._read_hints(hints, len(y))):
            return fitted.logits
        for number, one in enumerate(found, 1):
            names = self.classes_
            self._warn(question_features(one, y, names, names, f"hint {number}", copies=False))
        labels, own = y[fitted.rows], [one[fitted.rows] for one in found]
        self.hints_ = fit_hints(fitted.logits, labels, own)
        places = [f"hint {k + 1}" for k in range(len(found))]
        described = describe_hints(self.hints_, fitted.logits, labels, own, places)
        self.reasons_ = [*self.reasons_, *described]
        return self.hints_(fitted.logits, own)

    def _with_hints(self, logits: np.ndarray, hints: object) -> np.ndarray:
        found = self._read_hints(hints, len(logits))
        if not found or self.hints_ is None:
            if found:
                raise ValueError("hints: have no effect, since none were given to fit")
            if self.hints_ is not None:
                self._warn(["fitted with hints; without them, these are predictions of X alone"])
            return logits
        if len(found) != len(self.hints_.scales):
            raise ValueError(f"hints: expected {len(self.hints_.scales)}, got {len(found)}")
        return self.hints_(logits, found)

    def _read_hints(self, hints: object, count: int) -> list[np.ndarray]:
        names = [str(name) for name in self.classes_]
        # Rows in the order of X, whatever their index.
        sources = [
            one.reset_index(drop=True) if hasattr(one, "columns") else one
            for one in list_hints(hints)
        ]
        return [one.scores for one in read_hints(sources, names, None, count)]

    def _fit_decisions(
        self,
        y: np.ndarray,
        rows: np.ndarray,
        logits: np.ndarray,
        shares: dict[int, float],
        complete: np.ndarray | None,
        seed: int,
    ) -> None:
        """Fit the model of labelling to out-of-sample logits, and choose thresholds."""
        self._held_out, self._shown = logits, (y > 0).sum(axis=0)
        self.probabilities_, decisions, _ = fit_decisions(
            y, rows, logits, shown=self._shown, rule=self.decide, bias=self.label_bias_,
            labels_per_row=self.labels_per_row, unlabelled_rows=self.unlabelled_rows,
            prevalence=shares, complete=complete, seed=seed,
        )  # fmt: skip
        self._set_decisions(decisions)

    def _at_level(self, labels_per_row: float | None) -> Probabilities:
        """Return the curves, for a known number of labels per row."""
        fitted = self.probabilities_
        if labels_per_row is None:
            if self.labels_per_row in (None, self._level):
                return fitted
            # Set after fit, as the rule may be.
            labels_per_row = self.labels_per_row
        check_labels_per_row(labels_per_row, len(self.classes_), {})
        least = float(fitted.shown.sum()) / fitted.rows
        if labels_per_row < _ROUNDED * least:
            raise ValueError(
                f"labels_per_row: expected at least {least:.4g}, the mean number of labels that "
                f"rows show, got {labels_per_row:g}"
            )
        return fitted.at_level(self._held_out, labels_per_row, {})

    def _choose_decisions(self, rule: str, known: Probabilities) -> Decisions:
        """Return decisions by a rule, from the rows that the model was not fitted on."""
        is_own = known is self.probabilities_
        if is_own and str(parse_rule(rule)) == str(self.decisions_.rule):
            return self.decisions_
        shared = self.plan_["method"] == MANY_CLASSES_METHOD
        p = known(self._held_out)
        return choose_thresholds(p, self._shown, rule, known, shared=shared)

    def _set_decisions(self, decisions: Decisions) -> None:
        self.decisions_, self._level = decisions, self.labels_per_row
        if reason := self.probabilities_.not_known:
            self._warn([f"scores are not estimated: {reason}"])
        self.thresholds_ = self.decisions_.thresholds
        self.not_predicted_ = self.classes_[~self.decisions_.predicted]


def _to_python(value: object) -> Any:
    return value.item() if isinstance(value, np.generic) else value
