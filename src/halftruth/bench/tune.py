"""`tune`: a method's learning rate and own arguments, searched on validation with Optuna."""

import dataclasses
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from halftruth import losses
from halftruth.bench.search_space import Axis, Space, search_space, space_of
from halftruth.train.config import Config
from halftruth.train.criterion import CRITERIA
from halftruth.train.recipes import load_settings
from halftruth.train.run import Run
from halftruth.train.stage_progress import TrainingStopped

if TYPE_CHECKING:
    import optuna

# Of a run, not of a recipe.
_OF_THE_RUN = ("out", "cache_dir", "seed", "device", "workers", "report")


class TuneError(RuntimeError):
    """A search that cannot start, or found nothing."""


def tune(
    settings: dict[str, Any],
    recipe: Path | None = None,
    *,
    trials: int = 50,
    search: dict[str, Any] | None = None,
    storage: str | None = None,
    study: str = "halftruth",
    out: str | Path = "runs/tune",
    say: Callable[[str], None] = print,
) -> Path:
    """Search, and write the best settings to OUT/best.yaml, a recipe for `halftruth train`.

    settings, recipe: of the training, as `halftruth train` takes them. trials: in the whole
    study, over all workers. search: axes to add or replace, see `bench.search_space`; a key the
    method takes is its argument, any other a setting. storage: any URL of Optuna's; workers on
    several machines share a study by naming the same one (by default a file in OUT). A trial is
    judged as its epochs are (`select`): without complete labels (`truth`) by mAP and AUC on the
    observed ones, see docs/selection.md. The test rows have no say.
    """
    library = import_optuna()
    out = Path(out)
    config = load_settings(recipe, {**_with_needed(settings), "out": str(out / "trials")})
    space = search_space(config, search or {})
    out.mkdir(parents=True, exist_ok=True)
    library.logging.set_verbosity(library.logging.WARNING)
    made = library.create_study(
        study_name=study,
        storage=storage or f"sqlite:///{out / 'study.db'}",
        direction="maximize",
        # As in "Any-Class Presence Likelihood", 6.3: five trials at random, then TPE with 24
        # candidates; trials below the median are stopped, once five have come as far.
        sampler=library.samplers.TPESampler(
            n_startup_trials=5, n_ei_candidates=24, seed=config.seed, multivariate=False
        ),
        pruner=library.pruners.MedianPruner(
            n_startup_trials=5, n_warmup_steps=2, interval_steps=1, n_min_trials=5
        ),
        load_if_exists=True,
    )
    given = {name: _as_told(axis, _current(config, name)) for name, axis in space.items()}
    if all(axis.holds(_current(config, name)) for name, axis in space.items()):
        made.enqueue_trial(given, skip_if_exists=True)
    counted = (library.trial.TrialState.COMPLETE, library.trial.TrialState.PRUNED)
    done = sum(trial.state in counted for trial in made.trials)
    if done < trials:
        enough = library.study.MaxTrialsCallback(trials, states=counted)
        told = _Teller(trials, say)
        made.optimize(
            lambda trial: _judged(trial, config, space, out), callbacks=[enough, told.tell]
        )
    return _write_best(made, config, space, out, say)


def _with_needed(settings: dict[str, Any]) -> dict[str, Any]:
    """Arguments that a method needs and that are searched anyway start in the middle."""
    method = settings.get("method")
    if method not in losses.names():
        return settings
    space, options = space_of(method), dict(settings.get("options") or {})
    for name, parameter in losses.registry.signature(method).items():
        if parameter.default is parameter.empty and name in space:
            options.setdefault(name, space[name].at(0.5))
    return {**settings, "options": options}


def with_values(config: Config, values: dict[str, Any]) -> Config:
    """A configuration with some settings and arguments of its method changed."""
    options = losses.registry.signature(config.method)
    own = {name: value for name, value in values.items() if name in options}
    settings = {name: value for name, value in values.items() if name not in options}
    return dataclasses.replace(config, **settings, options={**config.options, **own})


def import_optuna() -> Any:
    """The search library, which is an optional dependency."""
    try:
        import optuna
    except ImportError as error:
        raise TuneError(
            'halftruth tune needs Optuna: pip install "halftruth[train]" (or pip install optuna). '
            "`halftruth bench run --trials N` searches without it"
        ) from error
    return optuna


class _Teller:
    """Says a line a trial."""

    def __init__(self, trials: int, say: Callable[[str], None]) -> None:
        self.trials, self.say = trials, say

    def tell(self, study: "optuna.Study", trial: "optuna.trial.FrozenTrial") -> None:
        shown = ", ".join(f"{name} {_short(value)}" for name, value in trial.params.items())
        last = trial.value if trial.value is not None else float("nan")
        state = trial.state.name.lower()
        self.say(f"trial {trial.number + 1}/{self.trials}: {100 * last:.2f} ({state}); {shown}")


def _judged(trial: "optuna.Trial", config: Config, space: Space, out: Path) -> float:
    """One training; what its kept epoch is worth on validation."""
    library = import_optuna()
    values = {name: _suggested(trial, name, axis) for name, axis in space.items()}
    folder = out / "trials" / f"{trial.study.study_name}-{trial.number}"
    shutil.rmtree(folder, ignore_errors=True)
    chosen = dataclasses.replace(
        with_values(config, values),
        out=str(folder),
        cache_dir=config.cache_dir or str(out / "cache"),
        report=False,
    )
    seen: list[float] = []

    def watch(record: dict[str, Any]) -> None:
        seen.append(record["select"])
        # Of all epochs so far, as the run itself keeps the best, or the last.
        trial.report(seen[-1] if chosen.select == "last" else max(seen), len(seen) - 1)
        if trial.should_prune():
            raise library.TrialPruned

    try:
        result = Run(chosen, quiet=True, watch=watch).go()
    except TrainingStopped as error:
        # A rate that is too high: the trial is worth nothing, the search goes on.
        trial.set_user_attr("stopped", str(error))
        raise library.TrialPruned from error
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    trial.set_user_attr("criterion", result.criterion)
    return result.best_score


def _suggested(trial: "optuna.Trial", name: str, axis: Axis) -> Any:
    if axis.choices:
        # A storage holds texts and numbers; a choice may be a list.
        return _value(axis, trial.suggest_categorical(name, [json.dumps(c) for c in axis.choices]))
    return _value(axis, trial.suggest_float(name, axis.low, axis.high, log=axis.log))


def _value(axis: Axis, stored: Any) -> Any:
    """What is trained with: three digits, so that it can be read and written down."""
    return json.loads(stored) if axis.choices else float(f"{stored:.3g}")


def _short(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def _as_told(axis: Axis, value: Any) -> Any:
    return json.dumps(value) if axis.choices else value


def _current(config: Config, name: str) -> Any:
    """What the settings say of something that is searched."""
    signature = losses.registry.signature(config.method)
    if name not in signature:
        return getattr(config, name)
    return config.options.get(name, signature[name].default)


def _write_best(
    study: "optuna.Study", config: Config, space: Space, out: Path, say: Callable[[str], None]
) -> Path:
    try:
        best = study.best_trial
    except ValueError as error:
        raise TuneError("no trial came to its end, so there is no best one") from error
    values = {
        name: _value(axis, best.params[name]) for name, axis in space.items() if name in best.params
    }
    found = with_values(config, values).to_dict()
    default = dataclasses.asdict(Config())
    kept = {
        key: value
        for key, value in found.items()
        if key not in _OF_THE_RUN and (value != default[key] or key in values)
    }
    path = out / "best.yaml"
    # A study of an earlier version does not say what it was judged by.
    words = CRITERIA.get(best.user_attrs.get("criterion", ""), "validation score")
    head = (
        f"# halftruth train {path} --out runs/best\n"
        f"# The best of {len(study.trials)} trials (study {study.study_name}): {words} "
        f"{100 * study.best_value:.2f}.\n"
    )
    path.write_text(head + yaml.safe_dump(kept, sort_keys=False), encoding="utf-8")
    say(f"best {words} {100 * study.best_value:.2f}; the recipe is {path}")
    return path
