"""The data of a run: labels, complete labels if known, parts, inputs."""

import warnings
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from accelerate import Accelerator

from halftruth import losses
from halftruth.data import (
    DataError,
    ImageStore,
    Splits,
    choose_splits,
    named_splits,
    read_column,
)
from halftruth.data import read_labels as read
from halftruth.data.check import find_images, question_features
from halftruth.data.complete_rows import add_complete_rows
from halftruth.data.decode_images import describe_bad
from halftruth.data.errors import some
from halftruth.data.hints import Hint, read_hint_names, read_hints
from halftruth.data.splits import check_groups, question_groups
from halftruth.data.verdicts import apply_verdicts
from halftruth.labels import (
    MANY_CLASSES,
    PRESENT,
    UNKNOWN,
    LabelMatrix,
)
from halftruth.labels.soft_labels import scale_weights
from halftruth.losses import Loss
from halftruth.presence.decisions import parse_rule
from halftruth.presence.probabilities import check_unlabelled_rows
from halftruth.reading import text_options
from halftruth.train.auto.plan import choose_val, fits_many
from halftruth.train.config import ENSEMBLE, GIVEN, Config, ConfigError
from halftruth.train.devices import let_main_go_first
from halftruth.train.inputs.feature_encoder import FeatureEncoder
from halftruth.train.inputs.feature_inputs import read_inputs, read_scores, read_texts
from halftruth.train.inputs.features_on_disk import belongs_on_disk, encode_on_disk
from halftruth.train.inputs.image_features import ImageFeatures
from halftruth.train.label_priors import parse_label_priors
from halftruth.train.settings import FAST

# Of many classes, those by which the terms of a text are chosen.
_FREQUENT_CLASSES = 500


@dataclass
class Task:
    """Labels of every row, the rows of each part, and the inputs."""

    labels: LabelMatrix
    splits: Splits
    truth: np.ndarray | None = None
    # A NumPy array, or a WideMatrix.
    features: Any = None
    # How tables and text became `features`; None if a matrix was given.
    encoder: FeatureEncoder | None = None
    store: ImageStore | None = None
    # The text of every row, if the run learns from text; for the report.
    texts: list[str] | None = None
    # Images of a run that also has columns, which could not be read.
    bad_images: list[tuple[str, str]] = field(default_factory=list)
    # The group of every row, if rows belong to groups.
    groups: np.ndarray | None = None
    # The labels of the file where verdicts of a review, or complete labels of some rows, changed
    # them: these say nothing about how the others came to be missing.
    given: np.ndarray | None = None
    # Scores of anything else for these rows, and the classes that their columns stand for.
    hints: list[Hint] = field(default_factory=list)
    hint_names: dict[str, list[str]] = field(default_factory=dict)

    @property
    def classes(self) -> tuple[str, ...]:
        return self.labels.classes

    @property
    def names(self) -> list[str]:
        """The names of the images."""
        if self.labels.items is None:
            raise DataError(
                "the label file has no image names; give their column with --image-column"
            )
        return [str(item) for item in self.labels.items]

    def get_selection_labels(self, config: Config) -> np.ndarray:
        """Return the labels by which epochs and thresholds are chosen."""
        if config.selects_on_truth and self.truth is not None:
            return self.truth
        return self.labels.values

    @property
    def has_label_values(self) -> bool:
        """Whether labels are soft or have weights."""
        return self.labels.soft is not None or self.labels.weights is not None

    def with_label_values(self, loss: Loss) -> Loss:
        """Return the loss with the soft labels and weights of the training rows, if any."""
        soft, weights, rows = self.labels.soft, self.labels.weights, self.splits.train
        if not self.has_label_values:
            return loss
        if weights is not None:
            weights = scale_weights(weights[rows])
        try:
            return losses.LabelValues(loss, None if soft is None else soft[rows], weights)
        except ValueError as error:
            raise DataError(f"method (--method): {error}") from None

    def question_inputs(self) -> list[str]:
        """Ask about features and hints that alone predict a class."""
        if self.labels.is_sparse:
            return []
        given = self.labels.values, self.classes
        found = [] if self.features is None else question_features(
            self.features, *given, None if self.encoder is None else self.encoder.outputs,
            copies=self.groups is None,
        )  # fmt: skip
        if (weights := self.labels.weights) is not None and weights.shape[1] > 1:
            found += question_features(weights, *given, self.classes, "weights of labels", False)
        for hint in self.hints:
            found += question_features(
                hint.scores, *given, self.classes, f"hint {hint.place}", False
            )
        return found

    def _question_truth(self) -> list[str]:
        """Ask about labels that the complete labels contradict."""
        if self.labels.is_sparse or self.truth is None:
            return []
        shown = self.labels.values == PRESENT
        wrong = int((shown & (self.truth != PRESENT)).sum())
        if not wrong and not ((self.truth == PRESENT) & ~shown).any():
            return [
                "warning: the complete labels show nothing that the labels do not; are they the "
                "same file? If all labels are known, read them with --zero absent"
            ] * bool((self.labels.values == UNKNOWN).any())
        if not wrong:
            return []
        return [
            f"warning: {wrong:,} of {int(shown.sum()):,} present labels are absent in the complete "
            "labels; if not so many are wrong, check the order of their rows and their coding"
        ]

    def describe(self) -> str:
        """Return a description of the data."""
        parts = ", ".join(
            f"{len(rows):,} {name}"
            for part, name in (("train", "training"), ("val", "validation"), ("test", "test"))
            if len(rows := getattr(self.splits, part)) or part != "val"
        )
        lines = [self.labels.describe(), f"rows: {parts}"]
        items = self.labels.items if self.groups is not None else None
        if items is not None and (several := len(items) - len(set(items))):
            lines.append(f"{several:,} rows repeat an item; rows of one item stay in one part")
        if self.encoder is not None:
            lines.append(self.encoder.describe())
        counts = self.labels.select(self.splits.train).positives_per_class()
        if never := [name for name, count in zip(self.classes, counts, strict=True) if not count]:
            lines.append(f"never present in the training rows: {some(never)}")
        lines += [f"hint: {hint.note}" for hint in self.hints]
        lines += [f"warning: {text}" for text in self.question_inputs()]
        if self.truth is not None:
            lines.append("complete labels are known, for choosing the epoch and for metrics")
            lines += self._question_truth()
        return "\n".join(lines)


def load_task(
    config: Config,
    encoder: FeatureEncoder | None = None,
    *,
    sparse: bool = False,
    accelerator: Accelerator | None = None,
    lower_absent: bool = True,
) -> Task:
    """Read the data of a run; `encoder`: that of the run which is resumed, if it has one.

    `accelerator`: of several processes, the main one writes features that are kept on disk.
    `sparse`: labels of more than `MANY_CLASSES` classes get sparse storage, and all terms of a text
    become a `WideMatrix`.
    `lower_absent`: see `apply_verdicts`.
    """
    labels, groups = _read_rows(config, sparse)
    labels, given = _add_verified_labels(config, labels, lower_absent)
    splits = choose_parts(config, labels, groups)
    labels, given, splits = _leave_out_weightless(config, labels, given, splits)
    task = Task(labels=labels, splits=splits, groups=groups, given=given)
    if config.truth:
        truth = read(config.truth, **truth_options(config), sparse=sparse)
        task.truth = align_truth(labels, truth, config.truth)
    if config.hint_names:
        task.hint_names = read_hint_names(config.hint_names, labels.classes)
    task.hints = read_hints(
        config.hints, labels.classes, labels.items, len(labels), task.hint_names
    )
    if config.on_features:
        _read_features(task, config, encoder, sparse, accelerator)
    else:
        task.store = ImageStore([Path(path) for path in config.images])
        _check_images_named(task)
    check_parts(task, config)
    return task


def _read_rows(config: Config, sparse: bool) -> tuple[LabelMatrix, np.ndarray | None]:
    """Return the labels of all rows, and the group of each row, if there are groups."""
    # First, so that a misspelt column is reported as --group-column, not as a dropped column.
    groups = read_groups(config)
    # An ensemble that was named takes all labels at once.
    stored = sparse and config.method != ENSEMBLE
    labels = read_label_rows(config, config.labels, reading_options(config), stored)
    if sparse and fits_many(config, labels):
        _refuse_with_many_classes(config, labels)
        labels = replace(labels, stored=labels.sparse)
    if len(labels) == 0:
        raise DataError(f"{config.labels}: there are no rows")
    # Reported before training; the results are used after it.
    try:
        parse_rule(config.decide, len(labels.classes))
    except ValueError as error:
        raise ConfigError([str(error)]) from None
    if config.prevalence or config.complete_classes or config.labels_per_row:
        parse_label_priors(
            labels.stored, labels.classes, config.prevalence, config.complete_classes,
            config.labels_per_row,
        )  # fmt: skip
    if config.unlabelled_rows == "dropped" and not sparse:
        check_unlabelled_rows(labels.values)
    return labels, choose_groups(config, groups, labels)


def choose_groups(
    config: Config, groups: np.ndarray | None, labels: LabelMatrix
) -> np.ndarray | None:
    """Return the checked groups of the rows; without a column of groups, items that repeat."""
    if groups is None:
        return group_repeated_items(labels.items)
    place = f"{config.labels}: group_column (--group-column) {config.group_column!r}"
    found = check_groups(groups, len(labels), place)
    for text in question_groups(found):
        warnings.warn(f"{place} {text}", stacklevel=2)
    return found


def group_repeated_items(items: np.ndarray | None) -> np.ndarray | None:
    """Return the items of rows as their groups if some repeat: such rows have the same input.

    A model must not be judged on rows of an item that it has seen.
    """
    repeats = items is not None and len(set(items)) < len(items)
    return np.asarray(items, dtype=str) if repeats else None


def read_label_rows(
    config: Config, file: str | Path, reading: dict[str, Any], sparse: bool = False
) -> LabelMatrix:
    """Read a label file; a column of text that it does not have is reported as `text`."""
    try:
        return read(file, **reading, sparse=sparse)
    except DataError:
        if config.text:
            # Not as a dropped column, which it is for the labels.
            read_texts(file, config.text, reading)
        raise


def _add_verified_labels(
    config: Config, labels: LabelMatrix, lower_absent: bool
) -> tuple[LabelMatrix, np.ndarray | None]:
    """Return labels with complete rows and verdicts, and those of the file where they changed."""
    given = None
    if config.complete_rows:
        labels, given = add_complete_rows(labels, config.complete_rows, reading_options(config))
    if config.verdicts:
        given = labels.values if given is None else given
        labels = apply_verdicts(labels, config.verdicts, lower_absent=lower_absent)
    return labels, given


def _leave_out_weightless(
    config: Config, labels: LabelMatrix, given: np.ndarray | None, splits: Splits
) -> tuple[LabelMatrix, np.ndarray | None, Splits]:
    """Leave out labels and rows of weight 0; an error if training or validation loses all rows."""
    if (weights := labels.weights) is None:
        return labels, given, splits
    kept = remove_rows(splits, np.flatnonzero(~weights.any(axis=1)))
    if not len(kept.train):
        raise DataError(
            f"{config.labels}: every weight of the {len(splits.train):,} training rows is 0, so "
            "there is nothing to learn from"
        )
    if len(splits.val) and not len(kept.val) and not config.fits_at_once:
        raise DataError(
            f"{config.labels}: every weight of the {len(splits.val):,} validation rows is 0, so "
            "no epoch can be chosen; give some of them another weight"
        )
    labels = labels.ignore_weightless()
    given = None if given is None else np.where(weights > 0, given, UNKNOWN)
    if not np.ptp(weights[kept.train]):
        # Equal weights say nothing.
        labels = replace(labels, weights=None)
    return labels, given, kept


def _read_features(
    task: Task,
    config: Config,
    encoder: FeatureEncoder | None,
    sparse: bool,
    accelerator: Accelerator | None,
) -> None:
    """Add the features of all rows: of tables, of text, and of the images beside these."""
    labels, rows = task.labels, task.splits.train
    values = get_frequent_labels(labels) if labels.is_sparse else labels.values
    images = None if encoder is None else encoder.images
    if config.images and images is None:
        images = ImageFeatures.create(config)
    on_disk = belongs_on_disk(config, len(labels))
    # The others wait for the files that the main process makes.
    with let_main_go_first(accelerator if on_disk or images is not None else None):
        if on_disk:
            task.features, encoder, task.texts = encode_on_disk(
                config, labels, values, rows, encoder, images
            )
        elif config.method == GIVEN:
            task.features, encoder = read_scores(config.features[0], labels)
        else:
            found = read_inputs(config, labels, config.labels, config.features, images=images)
            if encoder is None:
                encoder = FeatureEncoder.fit(
                    *found[:2], values, rows, config.encoder, config.tunes_encoder, images,
                    wide=sparse and not labels.is_sparse and labels.soft is None,
                )  # fmt: skip
            task.features, task.texts = encoder.transform(*found), found[1]
    if images is not None:
        task.store = ImageStore([Path(path) for path in config.images])
        _leave_out_bad(task, config, images.bad)
    task.encoder = None if encoder.is_plain else encoder


def _leave_out_bad(task: Task, config: Config, bad: list[tuple[str, str]]) -> None:
    """Fail if images cannot be read, or remove their rows from all parts."""
    if bad and config.bad_images == "fail":
        raise DataError(describe_bad(bad, len(task.names)))
    lost = {name for name, _ in bad}
    rows = [row for row, name in enumerate(task.names) if name in lost]
    task.splits, task.bad_images = remove_rows(task.splits, np.array(rows, dtype=int)), bad


def choose_parts(config: Config, labels: LabelMatrix, groups: np.ndarray | None) -> Splits:
    """Return the rows for training, validation and test."""
    val = choose_val(config, labels)
    parts = choose_splits(
        len(labels), column=labels.split, val=val, seed=config.seed, groups=groups
    )
    if not len(parts.val) and fits_many(config, labels):
        raise DataError(
            f"val (--val): expected more than 0 with more than {MANY_CLASSES:,} classes, got 0: "
            "probabilities and decisions of so many classes are found on rows that the model is "
            "not fitted to; leave it out"
        )
    return parts


def read_groups(config: Config) -> np.ndarray | None:
    """Return the group of each row (a patient), if there is a column of groups."""
    if not config.group_column:
        return None
    return read_column(
        config.labels, config.group_column, option="group_column", **text_options(config.reading)
    )


def check_parts(task: Task, config: Config) -> None:
    """Refuse training rows without a present label, and validation rows that must show one."""
    train, val = task.splits.train, task.splits.val
    if not task.labels.select(train).positives_per_row().any():
        raise DataError(
            f"{config.labels}: no label of the {len(train):,} training rows is present (1), "
            "so there is nothing to learn; check the columns and the options for label codes"
        )
    if task.labels.is_sparse:
        present = task.labels.select(val).positives_per_row().any()
        purpose = "probabilities cannot be found"
    elif not config.fits_at_once:
        present = (task.get_selection_labels(config)[val] > 0).any()
        purpose = "no epoch can be chosen"
    else:
        return
    if not present:
        raise DataError(
            f"{config.labels}: no label of the {len(val):,} validation rows is present (1), so "
            f"{purpose}; give more rows to validation (--val) or name others in the split column"
        )


def reading_options(config: Config) -> dict[str, Any]:
    """Return the options for reading the label file: groups and text are not labels."""
    others = [name for name in (config.group_column, config.text) if name]
    if not others:
        return config.reading
    dropped = dict.fromkeys([*config.reading.get("drop_columns", ()), *others])
    return {**config.reading, "drop_columns": [*dropped]}


def find_reading_options(config: Config, file: str | Path) -> dict[str, object]:
    """Return the options with which training read a file; {} for a file that it did not read."""
    if is_same_file(config.truth, file):
        return truth_options(config)
    # Other files with the column of text are read like the one of training.
    return reading_options(config) if config.text or is_same_file(config.labels, file) else {}


def is_same_file(one: str | Path | None, other: str | Path) -> bool:
    """Return whether two paths lead to one file."""
    return one is not None and Path(one).resolve() == Path(other).resolve()


def select_rows(
    labels: LabelMatrix, file: str | Path, split: str | None, parts: Splits | None = None
) -> np.ndarray:
    """Return the rows of one part of a label file, or all; rows of weight 0 do not count.

    `parts`: those of training; by default the split column of the file names them.
    """
    rows = np.arange(len(labels))
    if split is not None:
        if split not in ("train", "val", "test"):
            raise DataError(f"split: expected train, val or test, got {split!r}")
        if parts is None and labels.split is None:
            raise DataError(
                f"{file}: there is no split column, so the part {split!r} cannot be chosen; leave "
                "out --split, or name the column with --split-column"
            )
        rows = getattr(named_splits(labels.split) if parts is None else parts, split)  # type: ignore[arg-type]
        if not len(rows):
            raise DataError(f"{file}: no row belongs to the part {split!r}")
    if labels.weights is None:
        return rows
    counted = rows[labels.weights[rows].any(axis=1)]
    if not len(counted):
        raise DataError(f"{file}: every weight of its {len(rows):,} rows is 0")
    return counted


def truth_options(config: Config) -> dict[str, Any]:
    """Return the options for reading the complete labels, in which 0 means absent."""
    options = {"zero": "absent", **config.reading_truth}
    if config.truth == config.labels:
        kept = {*text_options(config.reading), "image_column", "split_column", "duplicates"}
        options = {**{k: v for k, v in config.reading.items() if k in kept}, **options}
        others = [config.reading.get("label_column"), config.group_column, config.text]
        dropped = [*config.reading.get("drop_columns", ()), *(name for name in others if name)]
        options.setdefault("drop_columns", dropped)
    return options


def align_truth(labels: LabelMatrix, truth: LabelMatrix, path: object) -> Any:
    """Return the complete labels in the order of rows and classes of the given labels.

    They are an array, or sparse where the given labels are.
    """
    position = {name: k for k, name in enumerate(truth.classes)}
    missing = [name for name in labels.classes if name not in position]
    if missing:
        raise DataError(f"{path}: the complete labels have no class {some(missing)}")
    columns = [position[name] for name in labels.classes]
    codes = truth.sparse if labels.is_sparse else None
    if labels.items is None or truth.items is None:
        if len(truth) != len(labels):
            raise DataError(
                f"{path}: expected complete labels for {len(labels):,} rows, got "
                f"{len(truth):,} rows, and there are no item names to match them"
            )
        return truth.values[:, columns] if codes is None else codes.select_classes(columns)
    place = {str(item): row for row, item in enumerate(truth.items)}
    lost = [str(item) for item in labels.items if str(item) not in place]
    if lost:
        raise DataError(f"{path}: the complete labels have no row for {some(lost)}")
    rows = [place[str(item)] for item in labels.items]
    if codes is not None:
        return codes.select(rows).select_classes(columns)
    return truth.values[rows][:, columns]


def get_frequent_labels(labels: LabelMatrix) -> np.ndarray:
    """Return the dense labels of the most frequent of many classes, to choose terms of text by."""
    frequent = np.argsort(-labels.positives_per_class(), kind="stable")[:_FREQUENT_CLASSES]
    return labels.sparse.select_classes(frequent).to_dense()


def _refuse_with_many_classes(config: Config, labels: LabelMatrix) -> None:
    """Refuse what the model of many classes does not take: settings of single labels or classes."""
    names = ("verdicts", "hints", "complete_rows", "prevalence", "complete_classes")
    given = [name for name in names if getattr(config, name)]
    if config.quality == FAST:
        given.append("quality")
    if labels.soft is not None or (labels.weights is not None and labels.weights.shape[1] > 1):
        given.append("soft" if labels.soft is not None else "label_weights")
    if given:
        raise DataError(
            f"{given[0]} (--{given[0].replace('_', '-')}): not available with many-classes, the "
            f"method for more than {MANY_CLASSES:,} classes; {config.labels} has "
            f"{len(labels.classes):,}; leave it out, or name another method (--method swan)"
        )


def _check_images_named(task: Task) -> None:
    """Fail before decoding if none of the images exists, or if two names mean one image."""
    assert task.store is not None
    found, lost = find_images(task.store, task.names)
    if not found:
        name, reason = next(iter(lost.items()))
        raise DataError(
            f"none of the {len(lost):,} images named in the label file is in {task.store}; the "
            f"first, {name!r}: {reason}"
        )


def remove_rows(splits: Splits, rows: np.ndarray) -> Splits:
    """Return the parts without some rows (of unreadable images)."""
    return Splits(*(np.setdiff1d(part, rows) for part in (splits.train, splits.val, splits.test)))


def release_validation(task: Task) -> Splits:
    """Return the parts with validation rows that were drawn, not named, among the training rows."""
    column, parts = task.labels.split, task.splits
    if column is not None and len(named_splits(column).val):
        return parts
    return Splits(np.union1d(parts.train, parts.val), parts.val[:0], parts.test)
