"""Every setting of a run, declared once: default, help, limits, conditions.

`Config` and its checks, the options of the command line, config.yaml, docs/settings.md, the error
for a setting without effect and the rules for resuming all use these declarations. A new setting is
one field of `Settings`, and its use. Nothing here imports torch.
"""

# ruff: noqa: RUF009 (`_declare` returns a dataclass field)

import dataclasses
import difflib
import math
import re
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import yaml

from halftruth.seeds import SEED_RANGE, is_seed

DATA, METHOD, MODEL, TRAINING = "Data", "Method", "Model", "Training"
MACHINE = "Machine and run folder"
# Chooses a plan by the labels and inputs; on features, the ensemble.
AUTO, ENSEMBLE, MANY_CLASSES_METHOD = "auto", "ensemble", "many-classes"
# The methods that are plans of features, not losses.
PLANS = (AUTO, ENSEMBLE, MANY_CLASSES_METHOD)
# The scores of another model, which `halftruth calibrate` takes instead of features.
GIVEN = "given-scores"
QUALITIES = FAST, _, BEST = "fast", "default", "best"


@dataclass(frozen=True)
class Condition:
    """A condition for a setting to have an effect; in texts `name` is another setting."""

    holds: Callable[["Settings"], bool]
    # Completes "lr has no effect, since ..."
    otherwise: str
    # For the docs table.
    words: str
    # What to do about it, where that is not to leave it out.
    advice: str = ""


# A recipe without images and features may have settings for both.
IMAGES = Condition(
    lambda s: bool(s.images) or not s.on_features,
    "it is for `images`, and this run trains on `features` or `text`",
    "images",
)
NETWORK = Condition(
    lambda s: not s.on_features or s.tunes_encoder,
    "it is for a network that is trained: `images` alone, or `text` with an `encoder` and `tune`",
    "images, fine-tuned encoder",
)
TUNABLE = Condition(
    lambda s: not s.on_features or bool(s.encoder),
    "only a network for `images` alone or an `encoder` of text can be tuned",
    "images, encoder of text",
)
FEATURES = Condition(
    lambda s: not s.tunes_encoder and (s.on_features or not s.images),
    "it is for `features` and `text`, and this run trains on `images`",
    "features",
)
FEATURE_FILES = Condition(
    lambda s: bool(s.features) or not (s.images or s.text),
    "it is for files of `features`, and this run has none",
    "files of features",
)
TEXT = Condition(
    lambda s: bool(s.text), "it reads a column of text, and none is named by `text`", "`text`"
)
WHOLE_NETWORK = Condition(
    lambda s: s.on_features or s.tune != "head",
    "with `tune` head only the head is trained",
    "not with `tune` head",
)
HEAD_ALONE = Condition(
    lambda s: (s.on_features and not s.tunes_encoder) or s.tune != "all",
    "with `tune` all the head is not trained alone",
    "not with `tune` all",
)
WARMING_UP = Condition(
    lambda s: s.schedule != "constant",
    "the `schedule` constant has no warm-up",
    "`schedule` one-cycle or cosine",
)
RIDGE = Condition(
    # 0 means no prior, which is always possible.
    lambda s: not s.ridge or not (s.hidden or s.weight_decay or s.optimizer == "adamw"),
    "a ridge prior is for a linear head without `weight_decay` and `hidden`, and not for the "
    "`optimizer` adamw",
    "without `weight_decay` and `hidden`",
)
ONE_MODEL = Condition(
    lambda s: not s.fits_at_once,
    "it is for a model that is trained by epochs, and the ensemble and given scores are not",
    "not with the ensemble of `auto`",
    "name a `method`, such as swan, or leave it out",
)
FAST_PLAN = Condition(
    lambda s: s.quality != FAST or s.fits_ensemble,
    "only an ensemble has fast members: `quality` fast is for `method` auto, on features that are "
    "not trained",
    "`quality` fast: the ensemble of `auto`",
)
BEST_PLAN = Condition(
    lambda s: s.quality != BEST or not (s.on_features or s.tune != "head-first"),
    "more than the default helps where a network is trained: `quality` best is for `images` with "
    "`tune` head-first",
    "`quality` best: images, `tune` head-first",
)
WITH_HINTS = Condition(
    lambda s: bool(s.hints), "there are no `hints` whose columns it could name", "`hints`"
)
WITH_TRUTH = Condition(
    lambda s: bool(s.truth), "there are no complete labels (`truth`) to read", "`truth`"
)
LABELS_INCOMPLETE = Condition(
    lambda s: not (s.select == "truth" or (s.select == "auto" and s.truth)),
    "probabilities are calibrated on complete labels (`truth`)",
    "without `truth`, or `select` observed",
)

# Whether a setting may change when a run is resumed.
FIXED, REPORTED, FREE = "fixed", "reported", "free"
_ON_RESUME = {FIXED: "no", REPORTED: "yes, reported", FREE: "yes"}


@dataclass(frozen=True)
class Setting:
    """One setting of a run."""

    help: str
    group: str
    name: str = ""
    kind: object = str
    default: object = None
    # The default for features, if it differs.
    default_on_features: object = None
    # The default for a fine-tuned encoder of text, if it differs.
    default_on_text: object = None
    # The default in words, if it is computed.
    default_words: str = ""
    choices: tuple[str, ...] = ()
    at_least: float | None = None
    more_than: float | None = None
    less_than: float | None = None
    only: tuple[Condition, ...] = ()
    on_resume: str = REPORTED
    # The setting to use instead if this one has no effect.
    instead: str = ""
    # `--help` shows it among the first options.
    first: bool = False
    # Names on the command line, if they are not derived from `name`.
    flags: tuple[str, ...] = ()
    # Not an option of its own on the command line.
    nested: bool = False

    @property
    def option(self) -> str:
        """The name on the command line."""
        return self.flags[0].split("/")[0] if self.flags else "--" + self.name.replace("_", "-")

    @property
    def default_text(self) -> str:
        """The default, in words."""
        shown = self.default_words or _format_value(self.default)
        if self.default_on_features is not None:
            shown += f"; {_format_value(self.default_on_features)} on features"
        if self.default_on_text is not None:
            shown += f"; {_format_value(self.default_on_text)} for a fine-tuned encoder"
        return shown

    def expected(self, value: Any) -> str | None:
        """Return what was expected if `value` is invalid, else None."""
        if self.name == "seed":
            return None if is_seed(value) else SEED_RANGE
        if not _is_of_kind(value, self.kind):
            return _describe_kind(self.kind)
        if value is None or isinstance(value, bool):
            return None
        if isinstance(value, float) and not math.isfinite(value):
            return "a finite number"
        if self.name == "budget" and parse_budget(value) is None:
            return "a number of trials or a time (12, 10 minutes)"
        if self.name == "decide" and not is_rule(value):
            return (
                "f1, macro-f1, f2, precision=0.9, recall=0.9, threshold=0.5, score=0.5, top=3, "
                "count or cost=5 (other numbers are possible)"
            )
        if self.choices and value not in self.choices:
            close = difflib.get_close_matches(value, self.choices, n=1, cutoff=0.7)
            hint = f" (did you mean {close[0]}?)" if close else ""
            return "one of " + ", ".join(self.choices) + hint
        outside = (
            (self.at_least is not None and value < self.at_least)
            or (self.more_than is not None and value <= self.more_than)
            or (self.less_than is not None and value >= self.less_than)
        )
        return self.limits_text if outside else None

    @property
    def limits_text(self) -> str:
        """The limits of a number, in words."""
        limits = zip(
            ("at least", "more than", "less than"),
            (self.at_least, self.more_than, self.less_than),
            strict=True,
        )
        return " and ".join(f"{word} {_format_value(n)}" for word, n in limits if n is not None)


def _declare(default: object, group: str, help: str, **more: Any) -> Any:
    """Return a field of `Settings`; `default` may be `list` or `dict`, for an empty one."""
    metadata = {"setting": Setting(help=help, group=group, **more)}
    if default in (list, dict):
        return dataclasses.field(default_factory=default, metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


@dataclass
class Settings:
    """All settings of a run, in the order of config.yaml and docs/settings.md."""

    # ------------------------------------------------------------------ data
    labels: str = _declare(
        "", DATA, "Label file or folder.", default_words="(required)", on_resume=FREE, nested=True
    )
    images: list[str] = _declare(
        list, DATA,
        "Folder, zip file or shards (.tar, .parquet, .arrow) of images; may be repeated.",
        on_resume=FREE, first=True, flags=("--images", "-i"),
    )  # fmt: skip
    features: list[str] = _declare(
        list, DATA, "Table or matrix of features, instead of images; may be repeated.",
        on_resume=FREE, first=True, flags=("--features", "-f"),
    )  # fmt: skip
    text: str | None = _declare(
        None, DATA, "Column of the label file with the text to learn from, instead of images.",
        on_resume=FIXED, first=True,
    )  # fmt: skip
    encoder: str | None = _declare(
        None, DATA,
        "Language model that reads the text beside TF-IDF: a folder, or a name on the Hugging Face "
        "Hub. It is frozen; with `tune` all or head-first it is fine-tuned instead of both.",
        default_words="TF-IDF of words and parts of words alone", only=(TEXT,), on_resume=FIXED,
    )  # fmt: skip
    out: str = _declare(
        "runs/last", DATA, "Run folder; a folder that holds a run is not overwritten.",
        on_resume=FREE, first=True, flags=("--out", "-o"),
    )  # fmt: skip
    truth: str | None = _declare(
        None, DATA,
        "Complete labels of the same items, for choosing the epoch and for metrics; never used for "
        "training. May be the same file as the labels.",
        on_resume=FREE, first=True,
    )  # fmt: skip
    verdicts: str | None = _declare(
        None, DATA,
        "Folder of an audit, or a CSV of verdicts: labels that people verified as present or "
        "absent replace those of the label file.",
        on_resume=FIXED,
    )  # fmt: skip
    complete_rows: str | None = _declare(
        None, DATA,
        "Rows labelled completely: a text file with one item of the label file per line, whose "
        "unknown labels are absent; or a second label file with the complete labels of some items, "
        "which also tells whether the first one prefers some classes.",
        on_resume=FIXED,
    )  # fmt: skip
    hints: list[str] = _declare(
        list, DATA,
        "Table with scores of anything else (another model, keyword rules, people) for all or some "
        "items and classes; may be repeated. How much it is worth is learnt per class.",
        on_resume=FREE,
    )  # fmt: skip
    hint_names: str | None = _declare(
        None, DATA, "Table with the columns hint and class, where the hints use other class names.",
        only=(WITH_HINTS,), on_resume=FREE,
    )  # fmt: skip
    reading: dict[str, Any] = _declare(
        dict, DATA, "How the label file is read: arguments of `read_labels`.",
        on_resume=FREE, nested=True,
    )  # fmt: skip
    reading_truth: dict[str, Any] = _declare(
        dict, DATA, "How the complete labels are read, if it differs; 0 means absent in this file.",
        on_resume=FREE, only=(WITH_TRUTH,), nested=True,
    )  # fmt: skip
    reading_features: dict[str, Any] = _declare(
        dict, DATA, "How the features are read: arguments of `read_feature_columns`.",
        on_resume=FREE, only=(FEATURE_FILES,), nested=True,
    )  # fmt: skip
    val: float | None = _declare(
        None, DATA,
        "Share of rows held out for validation, where no split column assigns them. The ensemble "
        "of auto needs none (0): its scores, probabilities and decisions are out of sample by "
        "folds.",
        default_words="chosen by the plan: 0 for the ensemble of auto, 0.02 to 0.1 with many "
        "classes, else 0.2 and at most 5,000 rows",
        at_least=0, less_than=1, on_resume=FREE, first=True,
    )  # fmt: skip
    group_column: str | None = _declare(
        None, DATA, "Rows with the same value in this column (a patient) stay in one part.",
        on_resume=FREE,
    )  # fmt: skip
    bad_images: str = _declare(
        "fail", DATA, "What to do with images that cannot be read.",
        choices=("fail", "skip"), only=(IMAGES,), on_resume=FREE,
    )  # fmt: skip

    # ------------------------------------------------------------------ method
    method: str = _declare(
        "auto", METHOD,
        "auto chooses by the labels: on features the ensemble (with thousands of classes "
        "many-classes), for a network a loss. Or one of these two; or a name from `halftruth "
        "methods`; or package.module:Class, a loss of your own.",
        on_resume=FIXED, first=True, flags=("--method", "-m"),
    )  # fmt: skip
    quality: str = _declare(
        "default", METHOD,
        "How much time the plan of auto takes. fast: a backbone of images stays as it is, and the "
        "ensemble has its fast members only. best: a network is also averaged with an ensemble on "
        "the features before it was trained, if that scores better; predictions then take twice "
        "as long.",
        choices=QUALITIES, only=(FAST_PLAN, BEST_PLAN), on_resume=FIXED, first=True,
    )  # fmt: skip
    budget: str | int | None = _declare(
        None, METHOD,
        "How many settings of the head auto may try for a network: a number of trials, or a time "
        "(10 minutes).",
        default_words="chosen by the labels",
        only=(ONE_MODEL,),
    )  # fmt: skip
    options: dict[str, object] = _declare(
        dict, METHOD, "Arguments of the method.", on_resume=FIXED, nested=True
    )
    decide: str = _declare(
        "f1", METHOD,
        "Which classes to predict: f1, macro-f1 (highest expected F1 per class), f2, "
        "precision=0.9, recall=0.9, threshold=0.5, score=0.5 (the same before calibration, as "
        "papers cut), top=3, count (as many as estimated) or cost=5 (a missed label costs 5 times "
        "as much as a wrong one).", on_resume=FREE, first=True,
    )  # fmt: skip
    labels_per_row: float | None = _declare(
        None, METHOD, "The mean number of present classes per row, if you know it.",
        default_words="estimated", more_than=0, on_resume=FREE,
    )  # fmt: skip
    unlabelled_rows: str = _declare(
        "auto", METHOD,
        "Whether rows without a shown label are in the label file (kept), or were left out when it "
        "was written (dropped); auto: left out, if every row shows one and some show several.",
        choices=("auto", "kept", "dropped"), only=(LABELS_INCOMPLETE,), on_resume=FREE,
    )  # fmt: skip
    prevalence: list[str] | dict[str, float] = _declare(
        list, METHOD,
        "The share of rows with a class, if you know it: class=0.1 (may be repeated), or a table "
        "with the columns class and prevalence.",
        only=(LABELS_INCOMPLETE,), on_resume=FREE,
    )  # fmt: skip
    complete_classes: list[str] = _declare(
        list, METHOD,
        "A class of which every present label is shown, so that an unknown label is absent; may "
        "be repeated.",
        only=(LABELS_INCOMPLETE,), on_resume=FREE,
    )  # fmt: skip

    # ------------------------------------------------------------------ model
    backbone: str = _declare(
        "resnet50", MODEL, "Any timm model.", only=(IMAGES,), on_resume=FIXED, first=True
    )
    weights: str = _declare(
        "pretrained", MODEL, "pretrained (timm's weights), none, or a file.",
        only=(IMAGES,), on_resume=FIXED,
    )  # fmt: skip
    image_size: int | None = _declare(
        None, MODEL, "Image side in pixels.", at_least=8, less_than=10_000,
        default_words="the model's own", only=(IMAGES,), on_resume=FIXED,
    )  # fmt: skip
    hidden: int = _declare(
        0, MODEL, "Width of a hidden layer before the head; 0: none.", at_least=0,
        only=(ONE_MODEL, FEATURES), on_resume=FIXED,
    )  # fmt: skip
    head: str = _declare(
        "linear", MODEL,
        "On images also cam, boostlu, label-query, variational (with tune all); on features also "
        "variational.",
        on_resume=FIXED,
        only=(ONE_MODEL,),
    )  # fmt: skip
    dropout: float = _declare(
        0.0, MODEL, "Dropout before the head.", at_least=0, less_than=1, only=(ONE_MODEL,)
    )
    tune: str = _declare(
        "head-first", MODEL,
        "What is trained: the head alone, the whole network (all), or first one and then the "
        "other.",
        choices=("all", "head", "head-first"), only=(TUNABLE,), on_resume=FIXED,
        default_on_features="head",
    )  # fmt: skip
    freeze_bn: bool = _declare(
        True, MODEL, "Keep the statistics and scales of batch norm.",
        only=(NETWORK, IMAGES, WHOLE_NETWORK), on_resume=FIXED,
        flags=("--freeze-bn/--train-bn",),
    )  # fmt: skip

    # ------------------------------------------------------------------ training
    epochs: int = _declare(
        10, TRAINING, "Epochs of the whole network, or on features.", at_least=1,
        default_on_features=30, default_on_text=4, only=(ONE_MODEL, WHOLE_NETWORK),
        instead="head_epochs",
        first=True,
    )  # fmt: skip
    head_epochs: int = _declare(
        12, TRAINING, "Epochs of the head alone.", at_least=1,
        only=(ONE_MODEL, NETWORK, HEAD_ALONE), instead="epochs",
    )  # fmt: skip
    batch_size: int = _declare(
        32, TRAINING, "Rows per step, over all processes.", at_least=1, on_resume=FIXED,
        only=(ONE_MODEL,),
    )  # fmt: skip
    lr: float = _declare(
        1e-4, TRAINING, "Learning rate of the whole network.", more_than=0,
        only=(ONE_MODEL, NETWORK, WHOLE_NETWORK), instead="head_lr", default_on_text=3e-5,
    )  # fmt: skip
    head_lr: float = _declare(
        3e-4, TRAINING, "Learning rate of the head alone, and on features.", more_than=0,
        default_on_features=1e-3, default_on_text=1e-3, only=(ONE_MODEL, HEAD_ALONE), instead="lr",
    )  # fmt: skip
    head_lr_mult: float = _declare(
        1.0, TRAINING,
        "Learning rate of the head while the whole network is trained, as a multiple of lr.",
        more_than=0, only=(NETWORK, WHOLE_NETWORK),
    )  # fmt: skip
    optimizer: str = _declare(
        "adam", TRAINING, "Optimizer; sgd has momentum 0.9.", choices=("adam", "adamw", "sgd"),
        on_resume=FIXED,
        only=(ONE_MODEL,),
    )  # fmt: skip
    weight_decay: float = _declare(
        0.0, TRAINING, "L2 penalty on weights; not on biases and norms.", at_least=0,
        only=(ONE_MODEL,),
    )  # fmt: skip
    l1: float = _declare(
        0.0, TRAINING, "L1 penalty on all parameters.", at_least=0, only=(ONE_MODEL,)
    )
    ridge: float | None = _declare(
        None, TRAINING,
        "Prior variance of a logit, for a linear head trained on features; 0: no prior.",
        at_least=0, default_words="chosen by the method: 2 for swan and auto, else 0",
        only=(ONE_MODEL, HEAD_ALONE, RIDGE),
    )  # fmt: skip
    schedule: str = _declare(
        "one-cycle", TRAINING, "Learning rate over the steps.",
        choices=("one-cycle", "cosine", "constant"),
        only=(ONE_MODEL,),
    )  # fmt: skip
    warmup: float = _declare(
        0.2, TRAINING, "Share of the steps in which the learning rate rises.", at_least=0,
        less_than=1, only=(ONE_MODEL, WARMING_UP),
    )  # fmt: skip
    ema: float = _declare(
        0.999, TRAINING,
        "Decay of the moving average of the weights, which is evaluated and kept; at most "
        "(1+t)/(10+t) in step t. 0: no average.",
        at_least=0, less_than=1,
        only=(ONE_MODEL,),
    )  # fmt: skip
    clip: float = _declare(
        0.0, TRAINING, "Largest norm of the gradient; 0: no limit.", at_least=0, only=(ONE_MODEL,)
    )
    augment: str = _declare(
        "weak", TRAINING,
        "Image augmentation; weak: crop, flip, brightness; strong: also contrast, saturation, "
        "erasing.",
        choices=("none", "flip", "weak", "strong"), only=(NETWORK, IMAGES, WHOLE_NETWORK),
    )  # fmt: skip
    patience: int | None = _declare(
        None, TRAINING, "Stop a stage after this many epochs without improvement.", at_least=1,
        default_words="never",
        only=(ONE_MODEL,),
    )  # fmt: skip
    select: str = _declare(
        "auto", TRAINING,
        "How the best epoch is chosen, see docs/training.md; averaged: the last epoch, its weights "
        "averaged with those from before the whole network was trained, in the proportion that "
        "scores best on the validation rows.",
        choices=("auto", "both", "auc", "observed", "truth", "last", "averaged"),
    )  # fmt: skip
    seed: int = _declare(0, TRAINING, f"Seed of all random numbers: {SEED_RANGE}.", on_resume=FIXED)

    # ------------------------------------------------------------------ machine and run folder
    device: str = _declare(
        "auto", MACHINE, "Where to compute.", choices=("auto", "cpu", "cuda", "mps"),
        on_resume=FREE, first=True,
    )  # fmt: skip
    precision: str = _declare(
        "auto", MACHINE,
        "Precision of training steps; auto: bf16 on a GPU that has it, else float32 (no). "
        "Evaluation and logits are always float32.",
        choices=("auto", "no", "fp16", "bf16"),
    )  # fmt: skip
    workers: int = _declare(
        2, MACHINE, "Threads that decode images and processes that load them.", at_least=0,
        only=(IMAGES,), on_resume=FREE,
    )  # fmt: skip
    cache: str = _declare(
        "auto", MACHINE,
        "Where decoded images and encoded features are kept; auto: on disk if they take much of "
        "the memory; none (images): decode in every epoch.",
        choices=("auto", "memory", "disk", "none"), on_resume=FREE,
    )  # fmt: skip
    cache_dir: str | None = _declare(
        None, MACHINE, "Folder for decoded images and features, shared by runs on the same images.",
        default_words="cache/ in the run folder", on_resume=FREE,
    )  # fmt: skip
    checkpoint_every: int = _declare(
        0, MACHINE, "Steps between checkpoints within an epoch; 0: only after each epoch.",
        at_least=0, on_resume=FREE,
    )  # fmt: skip
    track: str | None = _declare(
        None, MACHINE,
        "Also write the metrics to trackers: tensorboard, mlflow, wandb, trackio, ... (several: "
        "separated by commas).",
        on_resume=FREE, default_words="none",
    )  # fmt: skip
    report: bool = _declare(True, MACHINE, "Draw report.html at the end.", on_resume=FREE)

    @property
    def on_features(self) -> bool:
        """Whether the run trains on features or text, not on images."""
        return bool(self.features or self.text)

    @property
    def tunes_encoder(self) -> bool:
        """Whether a language model is fine-tuned on the text."""
        return bool(self.text and self.encoder) and self.tune != "head"

    @property
    def fits_ensemble(self) -> bool:
        """Whether an ensemble is fitted to features: of files, of text, or of images (tune head).

        It has no epochs, and no setting changes that: those of a single model have no effect.
        """
        frozen = bool(self.images) and not self.on_features and self.tune == "head"
        on_matrix = self.on_features and not self.tunes_encoder
        return self.method in PLANS and (on_matrix or frozen)

    @property
    def fits_at_once(self) -> bool:
        """Whether there are no epochs, so that no validation rows have to choose one."""
        return self.fits_ensemble or self.method == GIVEN

    def without_effect(self, name: str) -> str | None:
        """Return why a setting has no effect, and what to do; None if it has an effect."""
        setting = SETTINGS[name]
        broken = next((c for c in setting.only if not c.holds(self)), None)
        if broken is None:
            return None
        if broken.advice:
            return f"{broken.otherwise}; {broken.advice}"
        usable = setting.instead and self.without_effect(setting.instead) is None
        return f"{broken.otherwise}; " + (f"set `{setting.instead}`" if usable else "leave it out")


_KINDS = typing.get_type_hints(Settings)
SETTINGS: Mapping[str, Setting] = {
    f.name: dataclasses.replace(
        f.metadata["setting"],
        name=f.name,
        kind=_KINDS[f.name],
        default=None if f.default is dataclasses.MISSING else f.default,
    )
    for f in dataclasses.fields(Settings)
}
DEFAULTS_ON_FEATURES = {
    name: s.default_on_features for name, s in SETTINGS.items() if s.default_on_features is not None
}

DEFAULTS_ON_TEXT = {
    name: s.default_on_text for name, s in SETTINGS.items() if s.default_on_text is not None
}


def get_defaults(values: Mapping[str, object]) -> dict[str, Any]:
    """Return the defaults that differ from those of `Settings`, by the kind of inputs."""
    if not (values.get("features") or values.get("text")):
        return {"tune": "head"} if values.get("quality") == FAST else {}
    if values.get("encoder") and values.get("tune", "head") != "head":
        return DEFAULTS_ON_TEXT
    return DEFAULTS_ON_FEATURES


_BUDGET = re.compile(
    r"\s*(?:(?P<trials>\d+)\s*(?:trials?)?"
    r"|(?P<time>\d+(?:\.\d+)?)\s*(?P<unit>s|m|h|sec|min|seconds?|minutes?|hours?))\s*"
)
_SECONDS = {"s": 1, "m": 60, "h": 3600}


def is_rule(text: str) -> bool:
    """Return whether a text is a rule of decisions, such as f1 or precision=0.9."""
    from halftruth.presence.decisions import parse_rule

    try:
        parse_rule(text)
    except ValueError:
        return False
    return True


def parse_budget(budget: str | int) -> tuple[float, float] | None:
    """Return the trials and seconds of a budget ("12", "10 minutes"); None if it is invalid.

    >>> parse_budget("12 trials"), parse_budget("1.5 h"), parse_budget("soon")
    ((12.0, inf), (inf, 5400.0), None)
    """
    match = _BUDGET.fullmatch(str(budget))
    if match is None:
        return None
    if match["trials"]:
        return float(match["trials"]), math.inf
    return math.inf, float(match["time"]) * _SECONDS[match["unit"][0]]


def parse_number(value: object) -> object:
    """Return a number that YAML reads as text (1e-4) as a float, anything else unchanged."""
    if not isinstance(value, str):
        return value
    try:
        return float(value)
    except ValueError:
        return value


class _Loader(yaml.SafeLoader):
    """A YAML loader that refuses repeated keys and reads 1e-4 as a number."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[object, object]:
        seen: set[str] = set()
        for key, _ in node.value:
            if key.value in seen:
                line = key.start_mark.line + 1
                raise yaml.MarkedYAMLError(problem=f"line {line}: {key.value!r} is given twice")
            seen.add(key.value)
        return super().construct_mapping(node, deep)


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"[-+]?\d+(\.\d*)?[eE][-+]?\d+"), list("-+0123456789")
)


def read_yaml(text: str) -> Any:
    """Return the content of a YAML text; a repeated key is an error.

    >>> read_yaml("{lr: 1e-4, epochs: 3}")
    {'lr': 0.0001, 'epochs': 3}
    """
    return yaml.load(text, _Loader)


def as_options(text: str) -> str:
    """Return a message with the options of the command line instead of settings.

    >>> as_options("head_lr, lr: expected one; with `tune` head only `head_epochs` count")
    '--head-lr, --lr: expected one; with --tune head only --head-epochs count'
    >>> as_options('options: role needs tau, for instance options={"tau": 1.5}')
    '--set: role needs tau, for instance --set tau=1.5'
    """
    text = re.sub(r'options=\{"(\w+)": (\S+)\}', r"--set \1=\2", text)
    start, colon, rest = text.partition(": ")
    names = start.split(", ")
    if colon and all(name in SETTINGS for name in names):
        text = ", ".join(_get_option(name) for name in names) + colon + rest
    return re.sub(r"`(\w+)`", lambda m: _get_option(m[1]) if m[1] in SETTINGS else m[0], text)


def _get_option(name: str) -> str:
    """Return the option for a setting."""
    nested = {"labels": "LABELS", "options": "--set", "reading": "--read"}
    return nested.get(name) or SETTINGS[name].option.replace("--reading-", "--read-")


def make_settings_page() -> str:
    """Return docs/settings.md: one table of settings per group."""
    lines = [_PAGE_HEAD]
    for group in dict.fromkeys(s.group for s in SETTINGS.values()):
        lines += [
            f"\n## {group}\n",
            "setting | default | meaning | applies to | may change on resume",
        ]
        lines.append("---|---|---|---|---")
        for s in SETTINGS.values():
            if s.group != group:
                continue
            limits = f" One of {', '.join(f'`{c}`' for c in s.choices)}." if s.choices else ""
            limits = limits or (f" {s.limits_text.capitalize()}." if s.limits_text else "")
            applies = "; ".join(c.words for c in s.only) or "all runs"
            cells = [f"`{s.name}`", s.default_text, s.help + limits, applies]
            lines.append(" | ".join([*cells, _ON_RESUME[s.on_resume]]))
    return "\n".join(lines) + "\n"


_PAGE_HEAD = """# Settings of a run

Generated from `src/halftruth/train/settings.py` by
`python -m halftruth.train.settings > docs/settings.md`.

In Python and in a recipe (`halftruth train recipe.yaml`) settings have these names. On the command
line they are options with hyphens: `batch_size: 64` is `--batch-size 64`. Arguments of the method
go into `options` (`--set tau=0.7`). Arguments of the label reader stand among the settings or in
`reading` (`--zero absent`, `--read key=value`), those for the complete labels in `reading_truth`
(`--read-truth`), those for the features in `reading_features` (`--read-features`); see
[formats.md](formats.md). The command line overrides a recipe. A setting that is given and has no
effect is an error."""


def _format_value(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return f"{value:g}"
    return "" if value is None else str(value)


def _is_of_kind(value: object, kind: Any) -> bool:
    if isinstance(kind, types.UnionType):
        return any(_is_of_kind(value, one) for one in typing.get_args(kind))
    if typing.get_origin(kind) is list:
        return isinstance(value, list) and all(isinstance(entry, str) for entry in value)
    plain = typing.get_origin(kind) or kind
    if plain in (int, float) and isinstance(value, bool):
        return False
    return isinstance(value, (int, float) if plain is float else plain)


def _describe_kind(kind: Any) -> str:
    if isinstance(kind, types.UnionType):
        first, *_ = typing.get_args(kind)
        return f"{_describe_kind(first)} or nothing"
    plain = typing.get_origin(kind) or kind
    return {
        int: "a whole number", float: "a number", bool: "true or false", str: "text",
        list: "a list of paths", dict: "a mapping of names to values",
    }[plain]  # fmt: skip


if __name__ == "__main__":
    print(make_settings_page(), end="")
