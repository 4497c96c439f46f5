"""A scikit-learn classifier for features and incomplete labels."""

import copy
import inspect
import threading
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
from halftruth.data.splits import split_rows
from halftruth.metrics import mean_average_precision, thresholds
from halftruth.models import Classifier
from halftruth.train.auto import resolve_auto, search_settings
from halftruth.train.config import AUTO, Config, ConfigError
from halftruth.train.devices import OneProcess
from halftruth.train.fit import make_teacher, make_teacher_config
from halftruth.train.inputs import (
    apply_in_blocks,
    fit_standardization,
    standardize_inputs,
    to_dense,
)
from halftruth.train.stages import build_head
from halftruth.train.trainer import Stage, Teacher

_FLOATS = {"accept_sparse": "csr", "dtype": (np.float64, np.float32)}
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
        Number of settings that "auto" tries on held-out training rows, or a time such as
        "2 minutes". None: a handful. 0: none.
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
    threshold : float, array of shape (n_classes,) or "fit", default=0.5
        Probability above which a class is predicted. "fit": the best F1 per class on the held-out
        rows, with unknown counted as absent.
    random_state : int, RandomState or None, default=0
        Seed of initial weights, row order and held-out rows.
    device : {"cpu", "cuda", "mps", "auto"}, default="cpu"
        Where to train. Predictions are made on the CPU in double precision.

    Attributes
    ----------
    classes_ : array of shape (n_classes,)
        Column names of `y` if it is a DataFrame, otherwise 0, 1, 2, ...
    thresholds_ : array of shape (n_classes,)
        Threshold per class.
    reasons_ : list of str
        Why "auto" chose its settings; empty for other methods.
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
    >>> model.predict([[1.0, 1.0]])
    array([[1, 1]])
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
        threshold: Any = 0.5,
        random_state: Any = 0,
        device: str = "cpu",
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
        self.threshold = threshold
        self.random_state = random_state
        self.device = device

    def fit(self, X: Any, y: Any, groups: Any = None) -> "HalftruthClassifier":
        """Train on features and incomplete labels.

        Parameters
        ----------
        X : array, sparse matrix or DataFrame of shape (n_samples, n_features)
            Features. They are standardised per column.
        y : array, sparse matrix or DataFrame of shape (n_samples, n_classes)
            Labels: 1 present, 0 unknown, -1 absent.
        groups : array of shape (n_samples,), default=None
            Rows with the same value (the images of one patient) are held out together.

        Returns
        -------
        self : HalftruthClassifier
        """
        names = getattr(y, "columns", None)
        try:
            X, y = validate_data(self, X, y, multi_output=True, ensure_min_samples=2, **_FLOATS)
        except ValueError as error:
            if str(error).startswith("Input y contains NaN"):
                raise ValueError(
                    "Input y contains NaN. A label is 1 (present), 0 (unknown) or -1 (absent): "
                    "write 0 where it is unknown, for example y.fillna(0) or np.nan_to_num(y)"
                ) from None
            raise
        y = _labels(y)
        if groups is not None:
            groups = column_or_1d(groups)
            check_consistent_length(X, groups)
        config = self._config(y.shape[1])
        if not (y > 0).any():
            raise ValueError(
                f"no label of the {len(y):,} rows is present (1), so there is no class to learn; "
                "1 means present, 0 unknown, -1 absent"
            )
        config, self.reasons_ = self._resolve_auto(config, X, y, groups)
        train, val = np.arange(len(y)), np.arange(0)
        if self.val:
            train, val = split_rows(len(y), val=self.val, seed=config.seed, groups=groups)
        with _training_lock, torch.random.fork_rng(_cuda_devices()):
            first, teacher = make_teacher_config(config), None
            if first is not None:
                teacher = self._train(first, X, y, train, val)
            self._train(config, X, y, train, val, teacher)
        self.classes_ = np.arange(y.shape[1]) if names is None else np.asarray(names)
        if isinstance(self.threshold, str):
            held_out = apply_in_blocks(self.model_, X[val]).numpy()
            self.thresholds_ = thresholds.best(_sigmoid(held_out), y[val])
        else:
            self.thresholds_ = np.broadcast_to(self.threshold, y.shape[1]).astype(float)
        return self

    def decision_function(self, X: Any) -> np.ndarray:
        """Return the logits, an array of shape (n_samples, n_classes)."""
        check_is_fitted(self)
        X = validate_data(self, X, reset=False, **_FLOATS)
        return apply_in_blocks(self.model_, X).numpy()

    def predict_proba(self, X: Any) -> np.ndarray:
        """Return the probability per class, (n_samples, n_classes); rows do not add up to 1."""
        return _sigmoid(self.decision_function(X))

    def predict(self, X: Any) -> np.ndarray:
        """Return 1 where the probability is above the threshold of the class, otherwise 0."""
        return (self.predict_proba(X) > self.thresholds_).astype(int)

    def score(self, X: Any, y: Any) -> float:
        """Return the mean average precision (mAP), 0 to 1; labels other than 1 count as absent."""
        return mean_average_precision(self.decision_function(X), _labels(y))

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
        random = check_random_state(given.pop("random_state"))
        problems = _problems(given.pop("threshold"), given.pop("val"), given["patience"], classes)
        settings = {**given, "options": given["options"] or {}, "head_lr": given["lr"]}
        config = Config(**settings, features="X", seed=int(random.randint(2**31 - 1)))
        problems += [text for text in config.problems() if text.split(":")[0] in given]
        if problems:
            raise ConfigError(problems)
        return config

    def _resolve_auto(
        self, config: Config, X: Any, y: np.ndarray, groups: np.ndarray | None
    ) -> tuple[Config, list[str]]:
        """Replace "auto" by settings for these labels, and return them with the reasons."""
        if config.method != AUTO:
            return config, []
        defaults = {key: p.default for key, p in inspect.signature(type(self)).parameters.items()}
        config, choice = resolve_auto(
            config, y, X.shape[1], {**defaults, "head_lr": defaults["lr"]}
        )
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
            loss=losses.create(config.method, **config.options),
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
        self.model_: Classifier = model
        self.best_epoch_ = int(best["epoch"]) + 1
        return labeller


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


def _problems(threshold: Any, val: Any, patience: Any, classes: int) -> list[str]:
    """Problems of the settings that `Config` does not have."""
    found = []
    if isinstance(val, bool) or not isinstance(val, (int, float)) or not 0 <= val < 1:
        found.append(f"val: expected a share in [0, 1), got {val!r}")
    elif not val:
        wanting = {'threshold "fit"': isinstance(threshold, str), "patience": patience is not None}
        found += [
            f"val: {name} needs held-out rows, for instance val=0.2"
            for name, wants in wanting.items()
            if wants
        ]
    try:
        limits = np.asarray(0.5 if isinstance(threshold, str) else threshold, dtype=float)
    except (TypeError, ValueError):
        limits = np.array(np.nan)
    right = limits.shape in ((), (classes,)) and bool(((limits >= 0) & (limits <= 1)).all())
    if not right or (isinstance(threshold, str) and threshold != "fit"):
        found.append(
            f'threshold: expected "fit", a number in [0, 1] or one for each of the {classes} '
            f"classes, got {threshold!r}"
        )
    return found


def _to_python(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


def _cuda_devices() -> list[int]:
    return list(range(torch.cuda.device_count())) if torch.cuda.is_initialized() else []


def _sigmoid(logits: np.ndarray) -> np.ndarray:
    return torch.sigmoid(torch.from_numpy(logits)).numpy()


__all__ = ["HalftruthClassifier"]
