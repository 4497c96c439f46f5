"""`tune`: search a method's learning rate and arguments on validation rows, with Optuna."""

import dataclasses
import hashlib
import json
import shutil
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import yaml

from halftruth import losses
from halftruth.bench.search_space import Axis, Space, middle_of_required, search_space
from halftruth.labels import UNKNOWN
from halftruth.metrics import SEWER_ML_WEIGHTS, evaluate
from halftruth.metrics.counts import UndefinedMetricWarning
from halftruth.presence.solvers import sigmoid
from halftruth.train.config import AUTO, Config, load_settings
from halftruth.train.settings import DEFAULTS_ON_FEATURES

if TYPE_CHECKING:
    import optuna

    from halftruth.train.results.run_result import Result

# Settings of one run, which a recipe does not hold.
_OF_THE_RUN = ("out", "cache_dir", "seed", "device", "workers", "report")
# Settings that may differ between the workers of one study: the machine's, and paths, whose
# contents are compared instead.
_NOT_BOUND = {
    *_OF_THE_RUN, "labels", "truth", "features", "images", "weights", "precision", "cache",
    "checkpoint_every", "track",
}  # fmt: skip
_BOUND = "halftruth"
# What trials are compared by: the criterion that selects epochs, or a metric.
SELECTION = "selection"
OBJECTIVES = (SELECTION, "macro_F2", "F2_CIW")
_INCOMPLETE = (
    "objective {} needs complete labels of the validation rows, some are unknown: give them "
    "(--truth), or leave the objective out"
)


class TuneError(RuntimeError):
    """A search that cannot start, or that has no result."""


def tune(
    settings: dict[str, object],
    recipe: Path | Mapping[str, Any] | None = None,
    *,
    trials: int = 50,
    search: Mapping[str, object] | None = None,
    storage: str | None = None,
    study: str = "halftruth",
    out: str | Path = "runs/tune",
    objective: str = SELECTION,
    prune_after: int = 2,
    prune_every: int = 1,
    say: Callable[[str], None] = print,
) -> Path:
    """Search, and write the best settings to OUT/best.yaml, a recipe for `halftruth train`.

    settings, recipe: of the training, as `halftruth train` takes them. trials: in the whole
    study, over all workers. search: axes to add or replace, see `bench.search_space`; a key that
    is an argument of the method is passed to it, any other is a setting; None takes an axis away.
    storage: an Optuna
    storage URL; workers on several machines share a study by using the same one (by default a
    file in OUT). A study belongs to its data, method and settings. Trials are compared by the
    criterion that selects epochs (`select`): without complete labels (`truth`), mAP and AUC on
    the observed labels, see docs/explained/selection.md. Test rows are not used.

    objective: "selection", that criterion; or a metric at the threshold 0.5 on complete validation
    labels, "macro_F2" or, with the classes of Sewer-ML, "F2_CIW"; epochs of a trial are then pruned
    by macro F2. prune_after, prune_every: a trial
    below the median is stopped after so many epochs at the earliest, and checked so often ("Any-
    Class Presence Likelihood", 6.3: 22 and 4 of 90 epochs, objective macro_F2).
    """
    if objective not in OBJECTIVES:
        raise TuneError(f"objective: expected one of {', '.join(OBJECTIVES)}, got {objective!r}")
    if prune_after < 0 or prune_every < 1:
        raise TuneError(
            f"expected prune_after >= 0 and prune_every >= 1, got {prune_after} and {prune_every}"
        )
    out = Path(out)
    config = load_settings(recipe, {**_fill_required_options(settings), "out": str(out / "trials")})
    space = search_space(config, search or {})
    # After the checks: the imports of a search take seconds.
    library = import_optuna()
    out.mkdir(parents=True, exist_ok=True)
    library.logging.set_verbosity(library.logging.ERROR)
    pruner = library.pruners.MedianPruner(
        n_startup_trials=5,
        n_warmup_steps=prune_after,
        interval_steps=prune_every,
        n_min_trials=5,
    )
    made = _open_study(storage or f"sqlite:///{out / 'study.db'}", study, config, pruner)
    _bind(made, config, space, objective)
    given = {name: _current(config, name) for name in space}
    if all(axis.holds(given[name]) for name, axis in space.items()):
        stored = {name: json.dumps(v) if space[name].choices else v for name, v in given.items()}
        made.enqueue_trial(stored, skip_if_exists=True)

    def run(trial: "optuna.Trial") -> float:
        try:
            return _evaluate(trial, config, space, out, objective)
        except KeyboardInterrupt:
            made.enqueue_trial(trial.params)
            raise

    def show(_: object, trial: "optuna.trial.FrozenTrial") -> None:
        values = (f"{name} {_short(value)}" for name, value in trial.params.items())
        score = float("nan") if trial.value is None else 100 * trial.value
        state = trial.state.name.lower()
        say(f"trial {_count_finished(made)}/{trials}: {score:.2f} ({state}); {', '.join(values)}")

    try:
        while _count_finished(made) < trials:
            made.optimize(run, n_trials=1, callbacks=[show])
    except library.exceptions.OptunaError as error:
        raise TuneError(f"the study {study!r} cannot be continued: {error}") from error
    return _write_best(made, config, space, out, say)


def _open_study(storage: str, name: str, config: Config, pruner: object) -> "optuna.Study":
    """Create or load a study; whatever a storage raises becomes one clear error."""
    library = import_optuna()
    try:
        made = library.create_study(
            study_name=name,
            storage=storage,
            direction="maximize",
            pruner=pruner,
            load_if_exists=True,
        )
        # As in "Any-Class Presence Likelihood", 6.3: five random trials, then TPE with 24
        # candidates; trials below the median are stopped, once five have come as far. A continued
        # study draws new points, not those of its start.
        made.sampler = library.samplers.TPESampler(
            n_startup_trials=5,
            n_ei_candidates=24,
            seed=(config.seed + len(made.trials)) % 2**32,
            multivariate=False,
        )
    except Exception as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise TuneError(
            f"{storage}: cannot be opened as a storage of Optuna: {reason}. Expected an Optuna "
            "storage URL such as sqlite:///study.db (--storage), or a readable study.db in --out"
        ) from error
    return made  # type: ignore[no-any-return]


def _bind(study: "optuna.Study", config: Config, space: Space, objective: str) -> None:
    """Store data and settings in a new study; refuse a study of other data or settings."""
    settings = {
        name: value
        for name, value in config.to_dict().items()
        if name not in space and name not in _NOT_BOUND and name != "options"
    }
    options = {name: value for name, value in config.options.items() if name not in space}
    facts: dict[str, Any] = {
        **settings,
        "options": options,
        "searched": sorted(space),
        **({} if objective == SELECTION else {"objective": objective}),
        "images": sorted(Path(path).name for path in config.images),
        "weights": Path(config.weights).name,
        **{f"content of {name}": _digest(getattr(config, name)) for name in ("labels", "truth")},
        "content of features": [_digest(path) for path in config.features],
    }
    facts = json.loads(json.dumps(facts, default=str))
    stored = study.user_attrs.get(_BOUND, {})
    if not stored and not study.trials:
        study.set_user_attr(_BOUND, facts)
        return
    different = [] if stored else ["it does not record its data and settings"]
    for name in sorted({**facts, **stored} if stored else ()):
        now, was = facts.get(name), stored.get(name)
        if now != was:
            content = name.startswith("content of")
            different.append(f"{name} " + ("differs" if content else f"was {was!r}, now {now!r}"))
    if different:
        raise TuneError(
            f"the study {study.study_name!r} belongs to another search: {'; '.join(different)}. "
            "Use the same data and settings, another name (--study), or another folder (--out)"
        )


def _digest(path: str | None) -> str | None:
    """A digest of a file's content; of a folder, of its file names and sizes."""
    if not path:
        return None
    place, found = Path(path), hashlib.sha256()
    if not place.is_dir():
        found.update(place.read_bytes())
    for file in sorted(file for file in place.rglob("*") if file.is_file()):
        found.update(f"{file.relative_to(place)} {file.stat().st_size}\n".encode())
    return found.hexdigest()[:16]


def _count_finished(study: "optuna.Study") -> int:
    """Trials with a result, over all workers; interrupted ones do not count."""
    return sum(trial.state.name in ("COMPLETE", "PRUNED") for trial in study.trials)


def _fill_required_options(settings: dict[str, Any]) -> dict[str, Any]:
    """Fill in required arguments that are searched, from the middle of their range."""
    method = settings.get("method")
    try:
        middle = middle_of_required(method) if isinstance(method, str) and method != AUTO else {}
    except ValueError:
        # `Config` reports it.
        return settings
    return {**settings, "options": {**middle, **(settings.get("options") or {})}}


def with_values(config: Config, values: dict[str, Any]) -> Config:
    """Return a configuration with some settings and arguments of its method changed."""
    options = losses.registry.signature(config.method)
    own = {name: value for name, value in values.items() if name in options}
    settings = {name: value for name, value in values.items() if name not in options}
    return dataclasses.replace(config, **settings, options={**config.options, **own})


def import_optuna() -> ModuleType:
    """Return Optuna, which is an optional dependency."""
    try:
        import optuna
    except ImportError as error:
        raise TuneError(
            'halftruth tune needs Optuna: pip install "halftruth[train]" (or pip install optuna). '
            "`halftruth bench run --trials N` searches without it"
        ) from error
    return optuna


def _evaluate(
    trial: "optuna.Trial", config: Config, space: Space, out: Path, objective: str
) -> float:
    """Train with the suggested settings; the validation score of the selected epoch."""
    from halftruth.bench.training import train_run
    from halftruth.train.trainer import KEEP_LAST, TrainingStopped

    pruned = import_optuna().TrialPruned
    values = {name: _suggest(trial, name, axis) for name, axis in space.items()}
    folder = out / "trials" / f"{trial.study.study_name}-{trial.number}"
    shutil.rmtree(folder, ignore_errors=True)
    changed = dataclasses.replace(
        with_values(config, values),
        out=str(folder),
        cache_dir=config.cache_dir or str(out / "cache"),
        report=False,
    )
    seen: list[float] = []

    def watch(record: dict[str, Any]) -> None:
        if objective != SELECTION and "val_macro_F2" not in record:
            raise TuneError(_INCOMPLETE.format(objective))
        seen.append(record["select" if objective == SELECTION else "val_macro_F2"])
        # Of all epochs so far, as the run itself keeps the best, or the last.
        trial.report(seen[-1] if changed.select in KEEP_LAST else max(seen), len(seen) - 1)
        if trial.should_prune():
            raise pruned

    try:
        result = train_run(changed, on_epoch=watch)
    except TrainingStopped as error:
        # The learning rate is too high, for example: the trial has no result, the search goes on.
        trial.set_user_attr("stopped", str(error))
        raise pruned from error
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    own = objective == SELECTION
    trial.set_user_attr("criterion", result.criterion if own else objective)
    return result.best_score if own else compute_objective(objective, result)


def compute_objective(objective: str, result: "Result") -> float:
    """A metric of the sigmoid, cut at 0.5, on the complete labels of its validation rows."""
    assert result.details is not None
    task = result.details.task
    labels = (task.labels.values if task.truth is None else task.truth)[task.splits.val]
    if (labels == UNKNOWN).any():
        raise TuneError(_INCOMPLETE.format(objective))
    weights: dict[str, Any] = {"class_weights": SEWER_ML_WEIGHTS, "classes": task.classes}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UndefinedMetricWarning)
        try:
            weights = weights if objective == "F2_CIW" else {}
            found = evaluate(sigmoid(result.details.logits["val"]), labels, **weights)
            return float(found[objective])
        except ValueError as error:
            raise TuneError(f"objective {objective}: {error}") from error


def _suggest(trial: "optuna.Trial", name: str, axis: Axis) -> object:
    if axis.choices:
        # A storage holds strings and numbers; a choice may be a list.
        return _value(axis, trial.suggest_categorical(name, [json.dumps(c) for c in axis.choices]))
    return _value(axis, trial.suggest_float(name, axis.low, axis.high, log=axis.log))


def _value(axis: Axis, stored: Any) -> Any:
    """The value to train with: three digits, so that a recipe holds exactly this value."""
    return json.loads(stored) if axis.choices else float(f"{stored:.3g}")


def _short(value: object) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def _current(config: Config, name: str) -> object:
    """The given value of a setting or argument that is searched."""
    signature = losses.registry.signature(config.method)
    if name not in signature:
        return getattr(config, name)
    return config.options.get(name, signature[name].default)


def _write_best(
    study: "optuna.Study", config: Config, space: Space, out: Path, say: Callable[[str], None]
) -> Path:
    from halftruth.train.records import CRITERIA

    try:
        best = study.best_trial
    except ValueError as error:
        raise TuneError("no trial was completed, so there is no best one") from error
    values = {
        name: _value(axis, best.params[name]) for name, axis in space.items() if name in best.params
    }
    found = with_values(config, values).to_dict()
    # The defaults that a run of this recipe has.
    default = dataclasses.asdict(Config()) | (DEFAULTS_ON_FEATURES if config.on_features else {})
    kept = {
        key: value
        for key, value in found.items()
        if key not in _OF_THE_RUN and (value != default[key] or key in values)
    }
    path = out / "best.yaml"
    criterion = best.user_attrs.get("criterion", "")
    metric = f"validation {criterion}" if criterion in OBJECTIVES else "validation score"
    words = CRITERIA.get(criterion, metric)
    head = (
        f"# halftruth train {path} --out runs/best\n"
        f"# The best of {_count_finished(study)} trials (study {study.study_name}): {words} "
        f"{100 * study.best_value:.2f}.\n"
    )
    path.write_text(head + yaml.safe_dump(kept, sort_keys=False), encoding="utf-8")
    say(f"best {words} {100 * study.best_value:.2f}; the recipe is {path}")
    return path
