"""A scikit-learn classifier for features and incomplete labels, trained like `halftruth.fit`."""

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
from halftruth.train.auto import AUTO, settled
from halftruth.train.build import head_model
from halftruth.train.config import Config, ConfigError
from halftruth.train.one_process import (
    OneProcess,
    dense,
    in_blocks,
    standardization,
    standardized_inputs,
)
from halftruth.train.search_settings import tried
from halftruth.train.teacher import Teacher, teacher, teacher_config
from halftruth.train.trainer import Stage

_FLOATS = {"accept_sparse": "csr", "dtype": (np.float64, np.float32)}
# Training seeds torch's random state, of which a process has one.
_one_at_a_time = threading.Lock()


class HalftruthClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A linear classifier, or one with a hidden layer, for incomplete multi-label data.

    `fit(X, y)` takes (N, D) features, dense or sparse, and (N, K) labels: +1 present, 0 unknown,
    -1 absent. A multi-hot matrix of 0 and 1 therefore says what is there and nothing of the rest;
    where its zeros are a verified no, give `halftruth.labels.from_zero_absent(y)`.
    `method` and `options` name the loss (`halftruth.losses.names()`); "auto" looks at the labels,
    chooses method, rate and epochs, and leaves its `reasons_`; `budget` is how many settings it may
    try, or for how long (None: a handful, 0: none, "2 minutes"). Columns are standardised.
    `val` is a share of the rows that are not trained on but choose the epoch (and
    end training after `patience` epochs without gain). `threshold` is a probability, one a class,
    or "fit": the best F1 of each class on those held-out rows, unknown counting as absent.

    `score` is the mean average precision (mAP), not the accuracy of whole rows.

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
        """Learn from (N, D) features and (N, K) labels.

        `groups`: (N,) a name or number a row; rows that share one (a patient's) are held out
        together where rows are held out.
        """
        names = getattr(y, "columns", None)
        X, y = validate_data(self, X, y, multi_output=True, ensure_min_samples=2, **_FLOATS)
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
        config, self.reasons_ = self._settled(config, X, y, groups)
        train, val = np.arange(len(y)), np.arange(0)
        if self.val:
            train, val = split_rows(len(y), val=self.val, seed=config.seed, groups=groups)
        with _one_at_a_time, torch.random.fork_rng(_gpus()):
            first, label = teacher_config(config), None
            if first is not None:
                label = self._learn(first, X, y, train, val)
            self._learn(config, X, y, train, val, label)
        self.classes_ = np.arange(y.shape[1]) if names is None else np.asarray(names)
        if isinstance(self.threshold, str):
            held_out = in_blocks(self.model_, X[val]).numpy()
            self.thresholds_ = thresholds.best(_sigmoid(held_out), y[val])
        else:
            self.thresholds_ = np.broadcast_to(self.threshold, y.shape[1]).astype(float)
        return self

    def decision_function(self, X: Any) -> np.ndarray:
        """(N, K) logits."""
        check_is_fitted(self)
        X = validate_data(self, X, reset=False, **_FLOATS)
        return in_blocks(self.model_, X).numpy()

    def predict_proba(self, X: Any) -> np.ndarray:
        """(N, K) the probability of each class by itself: rows do not add up to 1."""
        return _sigmoid(self.decision_function(X))

    def predict(self, X: Any) -> np.ndarray:
        """(N, K) 1 where the probability is above the class's threshold, else 0."""
        return (self.predict_proba(X) > self.thresholds_).astype(int)

    def score(self, X: Any, y: Any) -> float:
        """The mean average precision (mAP) in 0..1; labels that are not 1 count as absent."""
        return mean_average_precision(self.decision_function(X), _labels(y))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.target_tags.multi_output, tags.target_tags.single_output = True, False
        tags.classifier_tags.multi_label, tags.classifier_tags.multi_class = True, False
        return tags

    # ------------------------------------------------------------------ inside

    def _config(self, classes: int) -> Config:
        """The settings of the stage; every mistake in them is reported at once."""
        # A search over np.arange(...) hands over numpy's numbers.
        given = {name: _plain(value) for name, value in self.get_params().items()}
        random = check_random_state(given.pop("random_state"))
        problems = _problems(given.pop("threshold"), given.pop("val"), given["patience"], classes)
        settings = {**given, "options": given["options"] or {}, "head_lr": given["lr"]}
        config = Config(**settings, features="X", seed=int(random.randint(2**31 - 1)))
        problems += [text for text in config.problems() if text.split(":")[0] in given]
        if problems:
            raise ConfigError(problems)
        return config

    def _settled(
        self, config: Config, X: Any, y: np.ndarray, groups: np.ndarray | None
    ) -> tuple[Config, list[str]]:
        """What "auto" means for these labels; other methods are trained as they are set."""
        if config.method != AUTO:
            return config, []
        usual = {key: p.default for key, p in inspect.signature(type(self)).parameters.items()}
        config, choice = settled(config, y, X.shape[1], {**usual, "head_lr": usual["lr"]})
        scale = standardization(X)
        x = in_blocks(scale, X).float()
        alone: Any = OneProcess(config.device)
        rows, labels = np.arange(len(y)), torch.from_numpy(y)
        with _one_at_a_time, torch.random.fork_rng(_gpus()):
            config, found = tried(config, choice, x, labels, rows, alone, groups=groups)
        return config, [*choice.reasons, *found]

    def _learn(
        self,
        config: Config,
        X: Any,
        y: np.ndarray,
        train: np.ndarray,
        val: np.ndarray,
        label: Teacher | None = None,
    ) -> Teacher:
        """Train `model_`; return it as one that can fill in labels for another."""
        torch.manual_seed(config.seed)
        model = head_model(config, X.shape[1], y.shape[1])
        # Apart from the model, in double precision: in float32 a column such as a date in seconds
        # would lose its digits, and every step would do again what can be done once.
        scale = standardization(X[train] if len(val) else X)
        model.backbone[0] = nn.Identity()  # type: ignore[operator]
        inputs = standardized_inputs(X, scale)
        alone: Any = OneProcess(config.device)
        stage = Stage(
            name="all",
            model=model,
            inputs=inputs,
            loss=losses.create(config.method, **config.options),
            labels=torch.from_numpy(y),
            train_rows=train,
            val_rows=val,
            config=config,
            accelerator=alone,
            epochs=config.epochs,
            lr=config.head_lr,
            head_lr=config.head_lr,
            teacher=label,
        )
        self.n_iter_ = stage.run().epoch
        best = stage.best()
        model.load_state_dict(best["model"])
        taught = teacher(copy.deepcopy(model), inputs, alone, 2 * config.batch_size)
        model.cpu().double().eval().requires_grad_(False)
        model.backbone[0] = scale  # type: ignore[operator]
        self.model_: Classifier = model
        self.best_epoch_ = int(best["epoch"])
        return taught


def _labels(y: Any) -> np.ndarray:
    """Labels as int8; targets of other kinds get the messages scikit-learn's users know."""
    y = dense(y)
    try:
        return np.ascontiguousarray(label_codes.check(y))
    except ValueError:
        check_classification_targets(y)
        if np.ndim(y) == 1 and type_of_target(y) == "multiclass":
            raise ValueError(
                "Only binary classification is supported, in one column a class, got one column "
                "of several classes; sklearn.preprocessing.label_binarize makes one a class"
            ) from None
        raise


def _problems(threshold: Any, val: Any, patience: Any, classes: int) -> list[str]:
    """What is wrong with the settings that a stage does not know."""
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
        cuts = np.asarray(0.5 if isinstance(threshold, str) else threshold, dtype=float)
    except (TypeError, ValueError):
        cuts = np.array(np.nan)
    right = cuts.shape in ((), (classes,)) and bool(((cuts >= 0) & (cuts <= 1)).all())
    if not right or (isinstance(threshold, str) and threshold != "fit"):
        found.append(
            f'threshold: expected "fit", a number in [0, 1] or one for each of the {classes} '
            f"classes, got {threshold!r}"
        )
    return found


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


def _gpus() -> list[int]:
    return list(range(torch.cuda.device_count())) if torch.cuda.is_initialized() else []


def _sigmoid(logits: np.ndarray) -> np.ndarray:
    return torch.sigmoid(torch.from_numpy(logits)).numpy()


__all__ = ["HalftruthClassifier"]
