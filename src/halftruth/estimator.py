"""A scikit-learn classifier for features and incomplete labels."""

import copy
import inspect
import math
import threading
import warnings
from typing import Any

import numpy as np
import torch
from torch import nn

try:
    from sklearn.base import BaseEstimator, ClassifierMixin
    from sklearn.utils import check_consistent_length, check_random_state, column_or_1d
    from sklearn.utils.multiclass import check_classification_targets, type_of_target
    from sklearn.utils.validation import check_is_fitted, validate_data
except ImportError as error:
    raise ImportError(
        'HalftruthClassifier needs scikit-learn 1.6 or later: pip install "halftruth[train]"'
    ) from error

from halftruth import labels as label_codes
from halftruth import losses
from halftruth.data.complete_rows import check_complete_rows
from halftruth.data.hints import list_hints, read_hints
from halftruth.data.splits import split_rows
from halftruth.labels import MANY_CLASSES, SparseLabels
from halftruth.metrics import mean_average_precision
from halftruth.models import Classifier
from halftruth.models.ensemble import MEMBERS
from halftruth.presence.decisions import decide
from halftruth.presence.labelling_model import logit, sigmoid
from halftruth.presence.probabilities import fit_probabilities
from halftruth.presence.propensity import LabelBias, choose_propensity
from halftruth.train.auto.resolve import hold_out_rows, resolve_auto, search_settings, uses_ensemble
from halftruth.train.config import AUTO, Config, ConfigError
from halftruth.train.devices import OneProcess
from halftruth.train.ensemble.fit_ensemble import FEW_ROWS, fit_ensemble
from halftruth.train.ensemble.hints import HintWeights, describe_hints, fit_hints
from halftruth.train.fit import make_teacher, make_teacher_config
from halftruth.train.inputs.batches import (
    apply_in_blocks,
    fit_standardization,
    is_sparse,
    standardize_inputs,
    to_dense,
)
from halftruth.train.knowledge import check_knowledge
from halftruth.train.many_classes.many_model import ManyClassModel
from halftruth.train.stages import build_head
from halftruth.train.trainer import Stage, Teacher

_FLOATS = {"accept_sparse": "csr", "dtype": (np.float64, np.float32)}
_MOST_DENSE = 200_000_000
_NOTHING_PRESENT = (
    "no label of the {:,} rows is present (1), so there is no class to learn; 1 means present, 0 "
    "unknown, -1 absent"
)
# Training seeds the random state of torch; there is one per process.
_training_lock = threading.Lock()


class HalftruthClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Multi-label classifier on features whose labels are incomplete.

    Labels are +1 (present), 0 (unknown) and -1 (absent). In a multi-hot matrix of 0 and 1 the zeros
    are therefore unknown; where they are verified, use `halftruth.labels.from_zero_absent(y)`.
    `score` is the mean average precision (mAP), not the accuracy of whole rows.

    Parameters
    ----------
    method : str, default="auto"
        Loss, see `halftruth.losses.names()`. "auto" chooses it, its learning rate and the number of
        epochs from the labels, and writes the reasons to `reasons_`.
    options : dict, default=None
        Arguments of the loss.
    budget : int or str, default=None
        None: "auto" fits an ensemble. A number: "auto" trains one model instead, and tries this
        many settings on held-out training rows first; also a time such as "2 minutes".
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
        Rule of `predict`: "f1" (highest expected F1 per class), "f2", "precision=0.9",
        "recall=0.9", "threshold=0.5", "top=3", "count" (as many per class as estimated), or
        "cost=5" (a missed label costs 5 times as much as a wrong one).
    labels_per_row : float, default=None
        Mean number of present classes per row, if you know it. None: estimated.
    prevalence : dict, default=None
        Share of rows per class (by its name in `classes_`), for classes where you know it.
    complete_classes : list, default=None
        Classes of which every present label is shown, so that their zeros are absent.
    random_state : int, RandomState or None, default=0
        Seed of initial weights, row order and held-out rows.
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
    reasons_ : list of str
        What "auto" chose and why; for the ensemble, the table of its members.
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
        method: str = "auto",
        *,
        options: dict[str, Any] | None = None,
        budget: str | int | None = None,
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
        members: Any = None,
        decide: str = "f1",
        labels_per_row: float | None = None,
        prevalence: Any = None,
        complete_classes: Any = None,
        random_state: Any = 0,
        device: str = "cpu",
        verbose: bool = False,
    ) -> None:
        self.method = method
        self.options = options
        self.budget = budget
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
        hints: Any = None,
        complete_rows: Any = None,
        sample_weight: Any = None,
    ) -> "HalftruthClassifier":
        """Train on features and incomplete labels.

        Parameters
        ----------
        X : array, sparse matrix or DataFrame of shape (n_samples, n_features)
            Features. They are standardised per column.
        y : array, sparse matrix or DataFrame of shape (n_samples, n_classes)
            Labels: 1 present, 0 unknown, -1 absent. NaN, None and pandas NA are unknown, too. With
            more than 1,000 classes, "auto" fits the model of many classes (docs/data.md), which
            keeps a sparse matrix sparse; `predict` then returns one.
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
            matter. Forests and neighbours use the mean weight of a row. With scikit-learn's
            metadata routing: `set_fit_request(sample_weight=True)`.

        Returns
        -------
        self : HalftruthClassifier
        """
        names = getattr(y, "columns", None)
        y = _fill_missing(y)
        X, y = validate_data(self, X, y, multi_output=True, ensure_min_samples=2, **_FLOATS)
        if groups is not None:
            groups = column_or_1d(groups)
            check_consistent_length(X, groups)
        self._weights = _check_weights(sample_weight, X, y)
        self.label_bias_: LabelBias | None = None
        self.many_: ManyClassModel | None = None
        if np.ndim(y) == 2 and y.shape[1] > MANY_CLASSES:
            config = self._config(y.shape[1])
            if self._uses_ensemble(config, X):
                others = {"hints": hints, "complete_rows": complete_rows, "members": self.members}
                others |= {"prevalence": self.prevalence, "complete_classes": self.complete_classes}
                return self._fit_many_classes(config, X, y, names, groups, others)
        y = _labels(y)
        if complete_rows is not None:
            y = _apply_complete_rows(y, complete_rows)
        config = self._config(y.shape[1])
        if not (y > 0).any():
            raise ValueError(_NOTHING_PRESENT.format(len(y)))
        names = np.arange(y.shape[1]) if names is None else np.asarray(names)
        knowledge = self.prevalence or {}, self.complete_classes or (), self.labels_per_row
        shares, complete = check_knowledge(y, names, *knowledge)
        if self._uses_ensemble(config, X):
            held = self._fit_ensemble(config, X, y, groups)
        else:
            config, self.reasons_ = self._resolve_auto(config, X, y, groups)
            held = self._fit_one_model(config, X, y, groups)
        self.classes_ = names
        del self._weights
        self._fit_decisions(y, *self._fit_hints(y, *held, hints), shares, complete)
        return self

    def decision_function(self, X: Any, hints: Any = None) -> np.ndarray:
        """Return the log-odds of P(present | x), an array of shape (n_samples, n_classes).

        The logits of the network before calibration are `model_(features)`. Without the `hints` of
        training, the model alone predicts.
        """
        check_is_fitted(self)
        X = validate_data(self, X, reset=False, **_FLOATS)
        if self.many_ is not None:
            _refuse_many({"hints": hints})
            return logit(self.many_.predict_proba(X))
        curves = self.probabilities_
        logits = self._with_hints(apply_in_blocks(self.model_, X).numpy(), hints)
        return curves.offset + curves.slope * logits

    def predict_proba(self, X: Any, hints: Any = None) -> np.ndarray:
        """Return P(present | x) per class, (n_samples, n_classes); rows do not add up to 1.

        The probabilities are calibrated by the model of labelling, without complete labels.
        """
        return sigmoid(self.decision_function(X, hints))

    def predict(self, X: Any, hints: Any = None) -> np.ndarray:
        """Return 1 for the classes that the rule `decide` predicts, otherwise 0.

        With many classes the result is a scipy CSR matrix.
        """
        check_is_fitted(self)
        if self.many_ is not None:
            _refuse_many({"hints": hints})
            found: np.ndarray = self.many_.predict(validate_data(self, X, reset=False, **_FLOATS))
            return found
        probabilities = self.predict_proba(X, hints)
        return self.decisions_(probabilities).astype(int)

    def score(self, X: Any, y: Any, hints: Any = None) -> float:
        """Return the mean average precision (mAP), 0 to 1; labels other than 1 count as absent."""
        check_is_fitted(self)
        if self.many_ is not None:
            _refuse_many({"hints": hints})
            X = validate_data(self, X, reset=False, **_FLOATS)
            return self.many_.score(X, _to_sparse_labels(_fill_missing(y)))
        return mean_average_precision(self.decision_function(X, hints), _labels(_fill_missing(y)))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.target_tags.multi_output, tags.target_tags.single_output = True, False
        tags.classifier_tags.multi_label, tags.classifier_tags.multi_class = True, False
        return tags

    # ------------------------------------------------------------------ training

    def _config(self, classes: int) -> Config:
        """Return the settings of training; all problems are in one error."""
        # A search over np.arange(...) passes NumPy numbers.
        given = {name: _to_python(value) for name, value in self.get_params().items()}
        for name in ("verbose", "prevalence", "complete_classes"):
            given.pop(name)
        random = check_random_state(given.pop("random_state"))
        problems = _find_problems(given.pop("members"), given.pop("val"), given["patience"])
        settings = {**given, "options": given["options"] or {}, "head_lr": given["lr"]}
        config = Config(**settings, features=["X"], seed=int(random.randint(2**31 - 1)))
        problems += [text for text in config.problems() if text.split(":")[0] in given]
        if problems:
            raise ConfigError(problems)
        return config

    def _uses_ensemble(self, config: Config, X: Any) -> bool:
        """Return whether "auto" fits the ensemble: unless a setting of one model was changed."""
        # Members need dense features: a large sparse matrix is trained by batches instead.
        small = not is_sparse(X) or math.prod(X.shape) <= _MOST_DENSE
        alone = uses_ensemble(config, self._get_defaults()) and not self.val and small
        if self.members is not None and not alone:
            raise ConfigError(
                [
                    'members: has no effect, since only method "auto" with the default settings '
                    "of training fits an ensemble"
                ]
            )
        return alone

    def _get_defaults(self) -> dict[str, Any]:
        parameters = inspect.signature(type(self)).parameters.items()
        defaults = {key: one.default for key, one in parameters}
        return {**defaults, "head_lr": defaults["lr"], "lr": defaults["lr"]}

    def _fit_ensemble(
        self, config: Config, X: Any, y: np.ndarray, groups: np.ndarray | None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Fit the ensemble, and return rows with their out-of-sample logits."""
        device = OneProcess(config.device).device
        with _training_lock, torch.random.fork_rng(_cuda_devices()):
            fitted = fit_ensemble(
                X,
                y,
                seed=config.seed,
                groups=groups,
                members=self.members,
                device=device,
                weights=self._weights,
                log=print if self.verbose else lambda text: None,
            )
        self.model_: Classifier = fitted.model.cpu().double()
        self.reasons_ = fitted.describe()
        self.label_bias_ = fitted.bias
        self.n_iter_ = self.best_epoch_ = 1
        return fitted.rows, fitted.logits

    def _fit_many_classes(
        self,
        config: Config,
        X: Any,
        y: Any,
        names: Any,
        groups: np.ndarray | None,
        others: dict[str, Any],
    ) -> "HalftruthClassifier":
        """Fit the model of many classes; arguments that need dense labels are refused."""
        _refuse_many(others)
        labels = _to_sparse_labels(y)
        if not labels.count_per_row().any():
            raise ValueError(_NOTHING_PRESENT.format(len(labels)))
        if self._weights is not None and self._weights.shape[1] > 1:
            raise ValueError(
                f"sample_weight: with more than {MANY_CLASSES:,} classes, expected one weight per "
                f"row, got shape {self._weights.shape}"
            )
        with _training_lock, torch.random.fork_rng(_cuda_devices()):
            self.many_ = ManyClassModel.fit(
                X, labels, rule=self.decide, labels_per_row=self.labels_per_row,
                weights=self._weights, groups=groups, seed=config.seed,
                log=print if self.verbose else lambda text: None,
            )  # fmt: skip
        del self._weights
        self.model_ = self.many_.fitted.model
        self.reasons_ = [f"many classes: {'; '.join(self.many_.fitted.notes)}"]
        self.n_iter_ = self.best_epoch_ = 1
        self.classes_ = np.arange(labels.classes) if names is None else np.asarray(names)
        self.decisions_ = self.many_.decisions
        self.thresholds_ = self.decisions_.thresholds
        self.not_predicted_ = self.classes_[~self.decisions_.predicted]
        return self

    def _make_loss(self, config: Config, train: np.ndarray) -> losses.Loss:
        """Return the loss of a method, with the weights of the training rows."""
        loss = losses.create(config.method, **config.options)
        if self._weights is None:
            return loss
        weights = self._weights[train]
        return losses.LabelValues(loss, weights=weights / weights.mean())

    def _fit_one_model(
        self, config: Config, X: Any, y: np.ndarray, groups: np.ndarray | None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Train one model, and return rows with logits of models that were not trained on them."""
        rows = np.arange(len(y))
        train, val = rows, np.arange(0)
        if self.val:
            train, val = split_rows(len(y), val=self.val, seed=config.seed, groups=groups)
            self._train_with_teacher(config, X, y, train, val)
            return val, apply_in_blocks(self.model_, X[val]).numpy()
        parts = hold_out_rows(rows, config.seed, groups) if len(y) >= FEW_ROWS else []
        standard = []
        for held in parts:
            self._train_with_teacher(config, X, y, np.setdiff1d(rows, held), val)
            standard.append(_standardize(apply_in_blocks(self.model_, X[held]).numpy())[0])
        self._train_with_teacher(config, X, y, train, val)
        own = apply_in_blocks(self.model_, X).numpy()
        if not parts:
            return rows, own
        # Models of the parts differ in level from the final one; the order of rows is what counts.
        _, mean, std = _standardize(own)
        return np.concatenate(parts), np.concatenate(standard) * std + mean

    def _train_with_teacher(
        self, config: Config, X: Any, y: np.ndarray, train: np.ndarray, val: np.ndarray
    ) -> None:
        with _training_lock, torch.random.fork_rng(_cuda_devices()):
            first, teacher = make_teacher_config(config), None
            if first is not None:
                teacher = self._train(first, X, y, train, val)
            self._train(config, X, y, train, val, teacher)

    def _fit_hints(
        self, y: np.ndarray, rows: np.ndarray, logits: np.ndarray, hints: Any
    ) -> tuple[np.ndarray, np.ndarray]:
        """Learn what hints are worth, and return the rows with logits that use them."""
        self.hints_: HintWeights | None = None
        if not (found := self._read_hints(hints, len(y))):
            return rows, logits
        own, places = [one[rows] for one in found], [f"hint {k + 1}" for k in range(len(found))]
        self.hints_ = fit_hints(logits, y[rows], own)
        self.reasons_ = [
            *self.reasons_,
            *describe_hints(self.hints_, logits, y[rows], own, places),
        ]
        return rows, self.hints_(logits, own)

    def _with_hints(self, logits: np.ndarray, hints: Any) -> np.ndarray:
        found = self._read_hints(hints, len(logits))
        if not found or self.hints_ is None:
            if found:
                raise ValueError("hints: have no effect, since none were given to fit")
            return logits
        if len(found) != len(self.hints_.scales):
            raise ValueError(f"hints: expected {len(self.hints_.scales)}, got {len(found)}")
        return self.hints_(logits, found)

    def _read_hints(self, hints: Any, count: int) -> list[np.ndarray]:
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
    ) -> None:
        """Fit the model of labelling to out-of-sample logits, and choose thresholds."""
        self.probabilities_ = fit_probabilities(
            y[rows], logits, labels_per_row=self.labels_per_row, prevalence=shares,
            complete=complete, propensity=choose_propensity(y, self.label_bias_), seed=0,
        )  # fmt: skip
        shown = (y > 0).sum(axis=0)
        self.decisions_ = decide(self.probabilities_(logits), shown, self.decide)
        self.thresholds_ = self.decisions_.thresholds
        self.not_predicted_ = self.classes_[~self.decisions_.predicted]

    def _resolve_auto(
        self, config: Config, X: Any, y: np.ndarray, groups: np.ndarray | None
    ) -> tuple[Config, list[str]]:
        """Replace "auto" by settings for these labels, and return them with the reasons."""
        if config.method != AUTO:
            return config, []
        config, choice = resolve_auto(config, y, X.shape[1], self._get_defaults())
        scale = fit_standardization(X)
        x = apply_in_blocks(scale, X).float()
        process: Any = OneProcess(config.device)
        rows, labels = np.arange(len(y)), torch.from_numpy(y)
        with _training_lock, torch.random.fork_rng(_cuda_devices()):
            config, found = search_settings(config, choice, x, labels, rows, process, groups=groups)
        return config, [*choice.reasons, *found]

    def _train(
        self,
        config: Config,
        X: Any,
        y: np.ndarray,
        train: np.ndarray,
        val: np.ndarray,
        teacher: Teacher | None = None,
    ) -> Teacher:
        """Train `model_`, and return it as a teacher that can label the rows for another model."""
        torch.manual_seed(config.seed)
        model = build_head(config, X.shape[1], y.shape[1])
        # Standardised once before training, in double precision: float32 cannot hold the digits of
        # a column such as a date in seconds.
        scale = fit_standardization(X[train] if len(val) else X)
        model.backbone[0] = nn.Identity()  # type: ignore[operator]
        inputs = standardize_inputs(X, scale)
        process: Any = OneProcess(config.device)
        stage = Stage(
            name="all",
            model=model,
            inputs=inputs,
            loss=self._make_loss(config, train),
            labels=torch.from_numpy(y),
            train_rows=train,
            val_rows=val,
            config=config,
            accelerator=process,
            epochs=config.epochs,
            lr=config.head_lr,
            head_lr=config.head_lr,
            teacher=teacher,
        )
        self.n_iter_ = stage.run().epoch
        best = stage.best()
        model.load_state_dict(best["model"])
        labeller = make_teacher(copy.deepcopy(model), inputs, process, 2 * config.batch_size)
        model.cpu().double().eval().requires_grad_(False)
        model.backbone[0] = scale  # type: ignore[operator]
        self.model_ = model
        self.best_epoch_ = int(best["epoch"]) + 1
        return labeller


def _fill_missing(y: Any) -> Any:
    """Return labels with 0 (unknown) where they are missing: NaN, None, pandas NA."""
    if y is None or is_sparse(y):
        return y
    if hasattr(y, "isna"):
        missing, values = np.asarray(y.isna()), y.to_numpy(dtype=object, na_value=0)
    else:
        values = np.asarray(y)
        if values.dtype.kind not in "fO":
            return y
        # NaN is the only value that differs from itself.
        missing = (values != values) | (values == None)  # noqa: E711
    if not np.any(missing):
        return y
    filled = np.where(missing, 0, values)
    if (filled[~missing] == 0).any() and not (filled == -1).any():
        warnings.warn(
            "y has missing values and 0, and both are read as unknown; where 0 is verified as "
            "absent, use halftruth.labels.from_zero_absent(y)",
            stacklevel=3,
        )
    return filled.astype(float) if filled.dtype == object else filled


def _labels(y: Any) -> np.ndarray:
    """Return the labels as int8; other targets get the messages of scikit-learn."""
    y = to_dense(y)
    try:
        return np.ascontiguousarray(label_codes.check(y))
    except ValueError:
        check_classification_targets(y)
        if np.ndim(y) == 1 and type_of_target(y) == "multiclass":
            raise ValueError(
                "Only binary classification is supported, with one column per class, got one "
                "column of several classes; sklearn.preprocessing.label_binarize converts it"
            ) from None
        raise


def _apply_complete_rows(y: np.ndarray, complete_rows: Any) -> np.ndarray:
    """Return labels whose unknown ones are absent in the complete rows."""
    new = check_complete_rows(complete_rows, len(y))[:, None] & (y == label_codes.UNKNOWN)
    if not new.any():
        raise ValueError(
            "complete_rows: has no effect, since the labels of these rows are all known already"
        )
    return np.where(new, np.int8(label_codes.ABSENT), y)


def _to_sparse_labels(y: Any) -> SparseLabels:
    """Return labels of many classes, which may be a scipy matrix, as sparse ones."""
    if is_sparse(y):
        return SparseLabels.from_scipy(y)
    return SparseLabels.from_dense(_labels(y))


def _refuse_many(given: dict[str, Any]) -> None:
    """Refuse arguments that are not available with many classes."""
    if named := [name for name, value in given.items() if value is not None]:
        raise ValueError(
            f"{', '.join(named)}: not available with more than {MANY_CLASSES:,} classes"
        )


def _check_weights(weights: Any, X: Any, y: Any) -> np.ndarray | None:
    """Return weights per row (N, 1) or per label (N, K) in float32."""
    if weights is None:
        return None
    weights = np.asarray(weights)
    if weights.ndim == 0:
        weights = np.full(X.shape[0], weights)
    try:
        found = label_codes.check_weights(weights, (X.shape[0], y.shape[1] if y.ndim > 1 else 1))
    except ValueError as error:
        raise ValueError(f"sample_weight: {error}") from None
    if not found.any():
        raise ValueError("sample_weight: every weight is zero, so there is nothing to learn from")
    return found


def _find_problems(members: Any, val: Any, patience: Any) -> list[str]:
    """Return the problems of the settings that `Config` does not have."""
    found = []
    if isinstance(val, bool) or not isinstance(val, (int, float)) or not 0 <= val < 1:
        found.append(f"val: expected a share in [0, 1), got {val!r}")
    elif not val and patience is not None:
        found.append("val: patience needs held-out rows, for instance val=0.2")
    if members is not None:
        listed = [] if isinstance(members, str) else list(members)
        if not listed or not set(listed) <= set(MEMBERS):
            found.append(f"members: expected a list of {', '.join(MEMBERS)}, got {members!r}")
    return found


def _standardize(logits: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return logits with mean 0 and deviation 1 per class, and both numbers."""
    mean, std = logits.mean(axis=0), logits.std(axis=0)
    std = np.where(std > 1e-9, std, 1.0)
    return (logits - mean) / std, mean, std


def _to_python(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


def _cuda_devices() -> list[int]:
    return list(range(torch.cuda.device_count())) if torch.cuda.is_initialized() else []


__all__ = ["HalftruthClassifier"]
