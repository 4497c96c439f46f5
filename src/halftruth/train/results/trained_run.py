"""A trained run: predictions for new images or features."""

import dataclasses
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from halftruth.data import DataError, decode_all
from halftruth.data.decode_images import Progress, describe_bad
from halftruth.data.errors import some
from halftruth.data.features import check_features
from halftruth.data.hints import Hint, list_hints, read_hints
from halftruth.data.images import GivenImage, ImageStore, open_images
from halftruth.data.memory import check_memory
from halftruth.data.transforms import Augment
from halftruth.data.wide_matrix import Matrix, WideMatrix
from halftruth.labels import LabelMatrix
from halftruth.models import Classifier
from halftruth.presence.decisions import Decisions, Rule, expect, parse_rule
from halftruth.presence.decisions import decide as choose_thresholds
from halftruth.presence.probabilities import Probabilities
from halftruth.presence.solvers import logit, sigmoid
from halftruth.train.config import MANY_CLASSES_METHOD, Config, check_device, read_settings
from halftruth.train.devices import OneProcess, make_accelerator
from halftruth.train.ensemble.hints import HintWeights
from halftruth.train.inputs.batches import Inputs, make_inputs
from halftruth.train.inputs.feature_encoder import FeatureEncoder
from halftruth.train.inputs.feature_inputs import (
    EncodedRows,
    Files,
    encode,
    is_matrix,
    read_run_features,
    warn_of_far_columns,
)
from halftruth.train.inputs.image_inputs import Images
from halftruth.train.label_priors import parse_label_priors
from halftruth.train.results.output_tables import avoid_names, make_prediction_table
from halftruth.train.results.row_parts import (
    LEAST_ROWS,
    PART_ROWS,
    RowParts,
    cut_rows,
    list_images,
)  # fmt: skip
from halftruth.train.results.saved_model import build_saved_model, load_weights
from halftruth.train.run_folder import (
    BEST,
    RESULT,
    CheckpointError,
    check_manifest,
    digest,
    digest_features,
    load_checkpoint,
    read_result,
    refuse_damage,
    to_json,
)
from halftruth.train.run_logger import RunLogger
from halftruth.train.scored_rows import HELD_OUT, ScoredRows
from halftruth.train.scoring import average_over_mirror, score_rows
from halftruth.train.settings import SETTINGS

# What a table says of scores before calibration.
RAW = "sigmoid of the logits"
# Decoded pixels that are held in memory at once.
_BLOCK_BYTES = 256 << 20

ImageSource = GivenImage | Sequence[GivenImage]
FeatureSource = Files | Matrix | pd.DataFrame | Sequence[Sequence[float]]


@dataclass
class Scores:
    """Logits and probabilities (N, K) of some items, and the images that could not be read."""

    items: list[str]
    logits: np.ndarray
    probabilities: np.ndarray
    bad: list[tuple[str, str]]
    # The texts of the rows, if they were read.
    texts: list[str] | None = None

    @property
    def raw(self) -> np.ndarray:
        """The sigmoid of the logits, which is not calibrated."""
        return sigmoid(self.logits)


class TrainedRun:
    """The trained model in a run folder.

        run = halftruth.load("runs/first")
        run.predict("photo.jpg")

    `classes`: the class names. `decisions`: the rule and the thresholds on probabilities.
    `model`: the network with the best weights.
    """

    def __init__(
        self, folder: str | Path, *, device: str = "auto", flip: bool = False, quiet: bool = True
    ) -> None:
        """`flip`: predict the mean over an image and its mirror image, in twice the time."""
        self.folder = Path(folder)
        values = read_settings(self.folder)
        strange = values.keys() - {field.name for field in dataclasses.fields(Config)}
        if strange:
            raise CheckpointError(
                f"{self.folder}: config.yaml has settings that this version of halftruth does not "
                f"have: {', '.join(sorted(strange))}"
            )
        check_device(device)
        for name, value in values.items():
            if expected := SETTINGS[name].expected(value):
                raise CheckpointError(
                    f"{self.folder / 'config.yaml'}: {name}: expected {expected}, got {value!r:.80}"
                )
        # Not checked further: the files of training may not exist any more.
        self.config = dataclasses.replace(Config(**values), device=device)
        check_manifest(self.folder)
        self.saved = load_checkpoint(self.folder / BEST)
        with refuse_damage(self.folder / BEST):
            self.classes: tuple[str, ...] = tuple(self.saved["identity"]["classes"])
            # The number of features per row; None for a run on images.
            self.inputs: int | None = self.saved["identity"]["inputs"]
        self.flip = flip
        # What is known of the level, beside what training knew: labels per row, and prevalences.
        self.level: tuple[float | None, dict[int, float]] = (None, {})
        if flip and self.inputs is not None:
            raise DataError(
                f"{self.folder}: flip (--flip) is for images, and this run was trained on features"
            )
        # This device may not support the precision of training.
        self.accelerator = make_accelerator(dataclasses.replace(self.config, precision="no"))
        # How files, tables and text become features.
        self.encoder = FeatureEncoder.load(self.folder) or FeatureEncoder.for_matrix(
            self.inputs or 0
        )
        self.logger = RunLogger(None, quiet=quiet)

    @cached_property
    def result(self) -> dict[str, Any] | None:
        """The content of result.json; None, with a warning, while training is not finished."""
        if (self.folder / RESULT).exists():
            return read_result(self.folder, self.classes)
        warnings.warn(
            f"{self.folder}: training is not finished, so probabilities are not calibrated, and "
            "a class is predicted above 0.5",
            stacklevel=2,
        )
        return None

    def at_level(
        self, labels_per_row: float | None = None, prevalence: Sequence[str] = ()
    ) -> "TrainedRun":
        """Return the run with probabilities that agree with what is known of new rows.

        labels_per_row: the mean number of present classes. prevalence: shares of rows, such as
        "dog=0.1". Nothing is trained; thresholds follow the probabilities.
        """
        if labels_per_row is None and not prevalence:
            return self
        if self.result is None:
            raise CheckpointError(f"{self.folder}: training is not finished, so there is no level")
        shares, _ = parse_label_priors(
            self.held_out.labels, self.classes, prevalence, (), labels_per_row
        )
        moved = copy(self)
        moved.level = labels_per_row, shares
        for name in ("fitted", "decisions"):
            moved.__dict__.pop(name, None)
        return moved

    @cached_property
    def fingerprint(self) -> str:
        """A digest of what turns scores into probabilities; tables of predictions state it.

        It is the same in a copy of the run, and in a run that is repeated.
        """
        if self.result is None:
            return "not finished"
        curves = {name: self.result.get(name) for name in ("classes", "probabilities")}
        return digest(to_json(curves).encode())[:8]

    def describe_basis(self, raw: bool = False) -> str:
        """Return what the scores of a table of predictions are: of which run, at which level."""
        labels_per_row, shares = self.level
        known = [] if labels_per_row is None else [f"labels_per_row={labels_per_row:g}"]
        known += [f"{self.classes[k]}={share:g}" for k, share in sorted(shares.items())]
        return ", ".join([f"run {self.fingerprint}", *known, *[RAW] * raw])

    @cached_property
    def decisions(self) -> Decisions:
        """The rule of the run, with one threshold per class on calibrated probabilities."""
        count = len(self.classes)
        if self.level != (None, {}) and self.result is not None:
            return self.decide(self.result.get("decide", "f1"))
        if self.result is None:
            return Decisions(Rule("threshold", 0.5), np.full(count, 0.5), np.full(count, True))
        with refuse_damage(self.folder / RESULT):
            left_out = set(self.result.get("not_predicted", ()))
            predicted = np.array([name not in left_out for name in self.classes])
            limits = np.array(self.result["thresholds"], dtype=float)
            return Decisions(parse_rule(self.result.get("decide", "f1")), limits, predicted)

    def decide(self, rule: str) -> Decisions:
        """Return decisions by another rule, from the scores of rows the model was not fitted on."""
        if self.result is None:
            raise CheckpointError(f"{self.folder}: training is not finished, so nothing is decided")
        shown = np.array(self.result["shown"], dtype=int)
        probabilities = self.infer(self.held_out.logits)
        try:
            return choose_thresholds(
                probabilities, shown, rule, self.fitted, shared=self.shares_curve
            )
        except ValueError as error:
            raise DataError(f"{self.folder}: {error}") from None

    def describe_expected(self, decisions: Decisions) -> str:
        """Return expected precision, recall and labels per row; '' where nothing is known."""
        if self.fitted is None:
            return ""
        found = expect(decisions, self.infer(self.held_out.logits), self.fitted)
        return "" if found is None else found.describe()

    @property
    def shares_curve(self) -> bool:
        """Whether thousands of classes share one curve of probabilities and one threshold."""
        return bool(self.saved["stage"] == MANY_CLASSES_METHOD)

    @cached_property
    def held_out(self) -> ScoredRows:
        """The rows that the model was not fitted on: labels and logits."""
        return ScoredRows.read(self.folder)

    @cached_property
    def fitted(self) -> Probabilities | None:
        """The model of labelling of the run; None while training is not finished."""
        if self.result is None:
            return None
        with refuse_damage(self.folder / RESULT):
            fitted = Probabilities.from_dict(self.result["probabilities"])
            if {fitted.offset.shape, fitted.slope.shape} != {(len(self.classes),)}:
                raise ValueError(f"expected {len(self.classes)} curves of probabilities")
        if self.level != (None, {}):
            return fitted.at_level(self.held_out.logits, *self.level)
        return fitted

    @property
    def curves(self) -> tuple[np.ndarray, np.ndarray]:
        """Offset and slope per class: P(present | x) = σ(offset + slope · logit)."""
        if self.fitted is None:
            return np.zeros(len(self.classes)), np.ones(len(self.classes))
        return self.fitted.offset, self.fitted.slope

    def infer(self, logits: np.ndarray) -> np.ndarray:
        """P(present | x) of logits (N, K); their sigmoid while training is not finished."""
        return sigmoid(logits) if self.fitted is None else self.fitted(logits)

    @property
    def thresholds(self) -> np.ndarray:
        """One threshold per class, on calibrated probabilities."""
        return self.decisions.thresholds

    @cached_property
    def model(self) -> Classifier:
        """The network with the best weights, in evaluation mode."""
        model = build_saved_model(self.config, self.saved, self.encoder)
        load_weights(model, self.saved["model"], self.folder / BEST)
        return model.to(self.accelerator.device).eval()

    def predict(
        self,
        source: object = None,
        *,
        images: ImageSource | None = None,
        features: FeatureSource | None = None,
        text: object = None,
        items: Sequence[str] | None = None,
        bad_images: str = "skip",
        workers: int | None = None,
        hints: object = None,
        decide: str | None = None,
        raw: bool = False,
        labels_per_row: float | None = None,
        prevalence: Sequence[str] = (),
        top: int | None = None,
    ) -> pd.DataFrame:
        """Return one row per item: its name, predicted labels, and P(present | x) per class.

        `source` is of the kind the run was trained on (`images=` and `features=` name the kind):

        - images: a file, a folder, a zip file, a PIL image, an array (H, W, 3) of uint8, or a list
          of these;
        - features: a file, an array (N, D) or a DataFrame; several files, if the run has several;
        - text: a table with the column of text, a DataFrame, a text or a list of texts.

        The names are file names, ids of the features, or row numbers; `items` gives others.
        `hints`: those of a run that was trained with hints, as files, DataFrames or arrays (N, K);
        without them, predictions are those of the model alone.
        Predicted labels are joined by "|"; `basis` states the run and the level. `decide`: another
        rule than that of training, such as "precision=0.9". `labels_per_row`, `prevalence`: see
        `at_level`. `raw`: the sigmoid of the logits instead of probabilities; the predicted labels
        stay the same. `top`: the names and probabilities of so many most probable classes, joined
        by "|", instead of one column per class; rows are then scored in blocks.
        """
        given: dict[str, Any] = {
            "images": images, "features": features, "text": text, "bad_images": bad_images,
            "workers": workers, "hints": hints, "items": items,
        }  # fmt: skip
        run = self.at_level(labels_per_row, prevalence)
        blocks = [run.score(source, **given)] if top is None else run.open_parts(source, **given)
        bad, tables = list[tuple[str, str]](), list[pd.DataFrame]()
        for scores in blocks:
            tables.append(run.make_table(scores, decide, raw, top))
            bad += scores.bad
        refuse_bad(bad, sum(map(len, tables)) + len(bad), bad_images)
        return tables[0] if len(tables) == 1 else pd.concat(tables, ignore_index=True)

    def make_table(
        self,
        scores: Scores,
        decide: str | None = None,
        raw: bool | None = False,
        top: int | None = None,
    ) -> pd.DataFrame:
        """Return the table of `predict` for scores."""
        decisions = self.decisions if decide is None else self.decide(decide)
        shown, chosen = scores.probabilities, decisions(scores.probabilities)
        table = make_prediction_table(
            scores.items, scores.raw if raw else shown, self.classes, chosen,
            self.describe_basis(bool(raw)), top,
        )  # fmt: skip
        column = self.config.text
        if scores.texts is not None and column is not None:
            table.insert(1, avoid_names(column, table.columns), scores.texts)
        return table

    def score(
        self,
        source: object = None,
        *,
        images: ImageSource | None = None,
        features: FeatureSource | None = None,
        text: object = None,
        items: Sequence[str] | None = None,
        bad_images: str = "skip",
        workers: int | None = None,
        hints: object = None,
    ) -> Scores:
        """Return the probabilities behind `predict`, and the images that could not be read.

        With a folder or zip file of images, `items` are the names of those to score.
        """
        given = self._sort_inputs(source, images, features, text, bad_images)
        names = None if items is None else [str(item) for item in items]
        if self.inputs is not None:
            matrix, ids, texts = encode(
                self.config, self.encoder, given["features"], given["text"], given["images"]
            )
            return self._with_hints(self._score_matrix(matrix, ids, names, texts), hints)
        store = open_images(given["images"], names)
        names = store.names() if names is None else names
        if not names:
            raise DataError(f"there are no images in {store}")
        with self.logger.progress("images", len(names)) as advance:
            scores = self._share(store, names, workers, advance)
        refuse_bad(scores.bad, len(names), bad_images)
        return self._with_hints(scores, hints)

    def open_parts(
        self,
        source: object = None,
        *,
        images: ImageSource | None = None,
        features: FeatureSource | None = None,
        text: object = None,
        items: Sequence[str] | None = None,
        bad_images: str = "skip",
        workers: int | None = None,
        hints: object = None,
        listed: bool = True,
    ) -> RowParts[Scores]:
        """Return the rows of `score` in parts, so that memory does not grow with them.

        Parts depend on the rows only: one process and many score the same. Hints and `items`, which
        name all rows, make one part. listed: False to score parts that another process has listed.
        """
        given = self._sort_inputs(source, images, features, text, bad_images)
        if hints or items is not None or self.config.hints:
            whole = partial(self.score, bad_images=bad_images, workers=workers, **given)
            return RowParts([None], lambda unit: iter([whole(items=items, hints=hints)]), None)
        batch = 2 * self.config.batch_size
        if self.inputs is None:
            units, count, size = list_images(given["images"], batch) if listed else ([], None, 0)
            parts = RowParts(units, partial(self._score_images, workers=workers), count, size)
            parts.block = _BLOCK_BYTES
            return parts
        rows = EncodedRows(
            self.config, self.encoder, given["features"], given["text"], given["images"]
        )
        # Logits are float64, and there are several copies of them.
        most = max(_BLOCK_BYTES // (64 * len(self.classes)), 1)

        def score(unit: tuple[int, int]) -> Iterator[Scores]:
            done = unit[0]
            for matrix, ids, texts in rows.blocks(*unit):
                for at in range(0, len(matrix), most):
                    part = matrix[at : at + most]
                    own = np.arange(done, done + len(part)) if ids is None else ids[at : at + most]
                    shown = None if texts is None else texts[at : at + most]
                    yield self._score_matrix(part, own, texts=shown)
                    done += len(part)

        units = cut_rows(rows.count, batch, PART_ROWS, least=LEAST_ROWS)
        return RowParts(units, score, rows.count, rows.size, rows.new.warn, _BLOCK_BYTES)

    def _sort_inputs(
        self, source: object, images: object, features: object, text: object, bad_images: str
    ) -> dict[str, Any]:
        """Return the inputs by kind; those that the run was not trained on are refused."""
        if bad_images not in ("skip", "fail"):
            raise DataError(f"bad_images (--bad-images): expected skip or fail, got {bad_images!r}")
        if bad_images == "fail" and not self.config.images:
            raise DataError(
                f"{self.folder}: bad_images (--bad-images) has no effect, since the run was not "
                "trained on images"
            )
        kind = "images" if self.inputs is None else "text" if self.config.text else "features"
        given: dict[str, Any] = {"images": images, "features": features, "text": text}
        if source is not None and given[kind] is None:
            given[kind], source = source, None
        found = [name for name, value in given.items() if value is not None]
        wanted = [kind, "features"] if kind == "text" and self.config.features else [kind]
        if kind != "images" and self.config.images:
            wanted = ["images", *wanted]
        if kind != "images" and text is None and images is None and is_matrix(features):
            # Features that `read_features` returned.
            wanted = ["features"]
        if source is not None or sorted(found) != sorted(wanted):
            several = source is not None or len(found) > len(wanted)
            got = (
                "more than one" if several else found[0] if found else "neither images nor features"
            )
            table = f"a table with the column {self.config.text!r}"
            options = " and ".join(table if name == "text" else f"--{name}" for name in wanted)
            raise DataError(
                f"{self.folder}: was trained on {' and '.join(wanted)}; expected them ({options}) "
                f"and nothing else, got {got}"
            )
        return given

    def _with_hints(self, scores: Scores, hints: object) -> Scores:
        """Combine the scores of the model with hints, as in training."""
        record = (self.result or {}).get("hints")
        sources = list_hints(hints)
        if not record:
            if sources:
                raise DataError(
                    f"{self.folder}: hints (--hints) have no effect, since the run was trained "
                    "without hints"
                )
            return scores
        if not sources:
            warnings.warn(
                f"{self.folder}: was trained with hints ({some(record['files'])}); without them "
                "(hints=, --hints) these are the predictions of the model alone",
                stacklevel=3,
            )
            return scores
        if len(sources) != len(record["files"]):
            raise DataError(
                f"{self.folder}: expected {len(record['files'])} hints (hints=, --hints) in the "
                f"order of training ({some(record['files'])}), got {len(sources)}"
            )
        found = self.read_hints(sources, scores.items)
        weights = HintWeights.from_dict(record["weights"])
        combined = weights(scores.logits, [hint.scores for hint in found])
        return self._make_scores(scores.items, combined, scores.bad)

    def read_hints(self, sources: Sequence[object], items: Sequence[str]) -> list[Hint]:
        """Return hints of items, with the names that training had for their columns."""
        names = ((self.result or {}).get("hints") or {}).get("names")
        return read_hints(sources, self.classes, items, len(items), names)

    def read_features(
        self,
        paths: Files | None,
        labels: LabelMatrix,
        table: str | Path | None = None,
        reading: Mapping[str, object] | None = None,
    ) -> Matrix:
        """Return the matrix of features of the rows of a label file, as in training.

        `paths`: files of features, those of training by default. `table`: the label file, which has
        the text; `reading`: how it is read.
        """
        file = table or self.config.labels
        return read_run_features(self.config, self.encoder, labels, file, paths, reading)

    def find_held_out(
        self,
        labels: LabelMatrix,
        rows: np.ndarray,
        *,
        matrix: object = None,
        images: object = None,
    ) -> np.ndarray:
        """Return the place of rows of a label file among those of `held_out`; −1 if they have none.

        `matrix`: the features of all rows of the file; they must be those of training. `images`:
        the folders or zip files of images; they must be those of training.
        """
        nowhere, identity = np.full(len(rows), -1), self.saved["identity"]
        # Only an ensemble has scores of its training rows by models that were not fitted on them.
        if HELD_OUT not in self.saved or self.result is None:
            return nowhere
        if self.inputs is not None:
            same = matrix is not None and digest_features(matrix) == identity["features"]
            return self.held_out.find(rows) if same else nowhere
        if not self.uses_images(images):
            return nowhere
        assert labels.items is not None
        return self.held_out.find(np.asarray(labels.items[rows], dtype=str), names=True)

    def uses_images(self, images: Any) -> bool:
        """Return whether these are the folders or zip files of images of training."""
        given = [images] if isinstance(images, str | Path) else list(images)
        files = all(isinstance(one, str | Path) for one in given)
        return files and [*map(_locate, given)] == [*map(_locate, self.config.images)]

    def use_held_out(self, scores: Scores, place: np.ndarray, hints: object = None) -> Scores:
        """Return scores where rows of `held_out` have those of a model not fitted on them.

        `place`: see `find_held_out`; `hints`: those that the scores were made with.
        """
        if (place < 0).all():
            return scores
        # The logits of the ensemble alone: those of `held_out` have the hints of training.
        held = self.saved[HELD_OUT]["logits"].double().numpy()[place]
        if list_hints(hints):
            held = self._with_hints(self._make_scores(scores.items, held, scores.bad), hints).logits
        logits = np.where((place >= 0)[:, None], held, scores.logits)
        found = self._make_scores(scores.items, logits, scores.bad)
        return dataclasses.replace(found, texts=scores.texts)

    def _score_matrix(
        self,
        matrix: Matrix,
        ids: np.ndarray | None,
        names: list[str] | None = None,
        texts: list[str] | None = None,
    ) -> Scores:
        assert self.inputs is not None
        if not isinstance(matrix, WideMatrix):
            check_features(matrix)
        if matrix.ndim != 2 or matrix.shape[1] != self.inputs:
            raise DataError(
                f"{self.folder}: was trained on {self.inputs:,} features per row, got a matrix of "
                f"shape {matrix.shape}"
                + "; give a file or a DataFrame with the columns of training"
                * (not self.encoder.is_plain)
            )
        if names is None:
            names = [str(name) for name in (range(len(matrix)) if ids is None else ids)]
        if len(names) != len(matrix):
            raise DataError(f"expected {len(matrix):,} items, one per row, got {len(names):,}")
        check_memory(
            16.0 * len(names) * len(self.classes),
            f"scores of {len(names):,} rows x {len(self.classes):,} classes",
            "predict to a file, or with top= (--top), which score rows in blocks",
        )
        if self.encoder.is_plain and isinstance(matrix, np.ndarray):
            warn_of_far_columns(self.model, matrix, stacklevel=5)
        logits = self._logits(make_inputs(matrix), np.arange(len(matrix)))
        scores = self._make_scores(names, logits, [])
        if (empty := self.encoder.find_empty(matrix)).any() and self.result is not None:
            # A text without a known term is far from all texts of training.
            shares = np.array(self.result["probabilities"]["prevalence"])[:, 0]
            offset, slope = self.curves
            scores.probabilities[empty] = shares
            scores.logits[empty] = (logit(shares) - offset) / np.where(slope > 0, slope, np.inf)
        scores.texts = texts
        return scores

    def _share(
        self, store: ImageStore, names: list[str], workers: int | None, advance: Progress
    ) -> Scores:
        """Score images; several processes score a share each, and all get all scores."""
        if self.accelerator.num_processes == 1:
            return join_scores(self._score_images((store, names), workers, advance))
        from accelerate.utils import gather_object

        shares = np.array_split(np.arange(len(names)), self.accelerator.num_processes)
        own = [names[row] for row in shares[self.accelerator.process_index]]
        return join_scores(
            gather_object([join_scores(self.alone._score_images((store, own), workers, advance))])
        )

    @property
    def alone(self) -> "TrainedRun":
        """The same run in this process alone, as if it were the only one."""
        if self.accelerator.num_processes == 1:
            return self
        # The model is built once.
        _ = self.model
        mine = copy(self)
        mine.accelerator = OneProcess(str(self.accelerator.device))  # type: ignore[assignment]
        return mine

    def _score_images(
        self,
        unit: tuple[Any, list[str] | None],
        workers: int | None,
        advance: Progress = lambda count: None,
    ) -> Iterator[Scores]:
        """Score the images of a store or of a shard, in blocks."""
        store, names = unit
        if not isinstance(store, ImageStore):
            store = open_images(store)
        names = store.names() if names is None else names
        size, threads = self.model.image_size, self.config.workers if workers is None else workers
        augment = Augment.preset("none", size, self.model.mean, self.model.std)
        block = max(_BLOCK_BYTES // (3 * size * size), 1)
        # A share may have no image.
        for at in range(0, len(names) or 1, block):
            some = names[at : at + block]
            done = decode_all(
                store, some, size, workers=max(threads, 1), on_bad="skip", progress=advance
            )
            good = np.flatnonzero(done.good)
            inputs = Images(store, some, size, augment=augment, pixels=done.pixels)
            yield self._make_scores(
                [some[row] for row in good], self._logits(inputs, good), done.bad
            )

    def _make_scores(
        self, names: list[str], logits: np.ndarray, bad: list[tuple[str, str]]
    ) -> Scores:
        return Scores(names, logits, self.infer(logits), bad)

    def _logits(self, inputs: Inputs, rows: np.ndarray) -> np.ndarray:
        if len(rows) == 0:
            return np.zeros((0, len(self.classes)))
        forward = average_over_mirror(self.model) if self.flip else self.model
        logits = score_rows(forward, inputs, rows, self.accelerator, 2 * self.config.batch_size)
        return logits.double().cpu().numpy()


def _locate(path: str | Path) -> Path:
    return Path(path).resolve()


def refuse_bad(bad: Sequence[tuple[str, str]], total: int, bad_images: str) -> None:
    """Refuse images that cannot be read, if none can or all must be."""
    if bad and (bad_images == "fail" or len(bad) == total):
        raise DataError(describe_bad(bad, total))


def join_scores(parts: Iterable[Scores]) -> Scores:
    """Return the scores of several blocks as one."""
    given = list(parts)
    return Scores(
        [name for part in given for name in part.items],
        np.concatenate([part.logits for part in given]),
        np.concatenate([part.probabilities for part in given]),
        [entry for part in given for entry in part.bad],
    )


def open_run(run: TrainedRun | str | Path) -> TrainedRun:
    """Return the run itself, or the run in a folder."""
    return run if isinstance(run, TrainedRun) else TrainedRun(run)
