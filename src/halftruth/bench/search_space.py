"""Search spaces of methods and training settings, and evenly spread points in them."""

import dataclasses
import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from halftruth.bench import read_bench_yaml
from halftruth.losses import registry
from halftruth.train.config import Config, ConfigError
from halftruth.train.settings import PLANS, parse_number

# Searched together with the method's arguments, where they have an effect.
RATES: dict[str, object] = {
    "lr": {"low": 1e-5, "high": 1e-3, "log": True},
    "head_lr": {"low": 1e-4, "high": 1e-2, "log": True},
}


@dataclass(frozen=True)
class Axis:
    """A range of numbers, linear or logarithmic, or a list of choices."""

    low: float = 0.0
    high: float = 0.0
    log: bool = False
    choices: tuple[object, ...] = ()

    @classmethod
    def of(cls, name: str, given: object) -> "Axis":
        """Build an axis from a list of choices, or a mapping with low, high and optionally log."""
        if isinstance(given, (list, tuple)) and given:
            return cls(choices=tuple(parse_number(value) for value in given))
        if not isinstance(given, Mapping) or not {"low", "high"} <= given.keys() <= _RANGE:
            raise ValueError(
                f"search of {name}: expected a list of choices or {{low: ..., high: ..., "
                f"log: true}}, got {given!r}"
            )
        low, high, log = float(given["low"]), float(given["high"]), bool(given.get("log", False))
        if not (math.isfinite(low) and math.isfinite(high) and low < high) or (log and low <= 0):
            raise ValueError(
                f"search of {name}: expected low < high{' and low > 0' if log else ''}, "
                f"got {low:g} and {high:g}"
            )
        return cls(low, high, log)

    def holds(self, value: Any) -> bool:
        """Whether a value is one of the choices, or inside the range."""
        if self.choices:
            return value in self.choices
        number = isinstance(value, (int, float)) and not isinstance(value, bool)
        return number and self.low <= value <= self.high

    def at(self, share: float) -> Any:
        """The value at a fraction of the range, in [0, 1).

        >>> Axis(0.01, 1.0, log=True).at(0.5), Axis(choices=("a", "b")).at(0.5)
        (0.1, 'b')
        """
        if self.choices:
            return self.choices[min(int(share * len(self.choices)), len(self.choices) - 1)]
        if self.log:
            value = math.exp(math.log(self.low) + share * math.log(self.high / self.low))
        else:
            value = self.low + share * (self.high - self.low)
        # Three digits, so that the printed value is the one that was used.
        return float(f"{value:.3g}")


_RANGE = {"low", "high", "log"}
Space = dict[str, Axis]


def parse(given: Mapping[str, Any]) -> Space:
    """Build a space from a mapping of names to axes, as in a YAML file."""
    return {str(name): Axis.of(str(name), axis) for name, axis in given.items()}


def space_of(method: str) -> Space:
    """The declared search space of a method's arguments; empty if none is declared.

    >>> space_of("em")["alpha"].choices
    (0.01, 0.02, 0.1, 0.2, 0.4, 0.9)
    """
    return parse(read_bench_yaml("search_spaces.yaml").get(registry.resolve(method), {}))


def middle_of_required(method: str) -> dict[str, Any]:
    """Required arguments of a method that are searched, from the middle of their range."""
    space, arguments = space_of(method), registry.signature(method).items()
    needed = (name for name, argument in arguments if argument.default is argument.empty)
    return {name: space[name].at(0.5) for name in needed if name in space}


def search_space(config: Config, given: Mapping[str, object]) -> Space:
    """The learning rates, the method's declared space, and the given axes, which replace both.

    An axis that is None is not searched: "Any-Class Presence Likelihood", 6.3, searches alpha and
    lambda at one learning rate.
    """
    method = config.method
    if method in PLANS:
        raise ConfigError(
            [
                "method: tune searches the arguments of one method, so name one (em, hill, ...); "
                "auto chooses its own"
            ]
        )
    used = _rates_used(config)
    idle = [name for name in RATES.keys() & given.keys() if name not in used]
    found = [f"search: {name} has no effect here, search {' and '.join(used)}" for name in idle]
    known = {f.name for f in dataclasses.fields(Config)} | registry.signature(method).keys()
    unknown = given.keys() - known
    found += [f"search: neither {method} nor training takes {name!r}" for name in unknown]
    if found:
        raise ConfigError(found)
    try:
        own = parse({name: axis for name, axis in given.items() if axis is not None})
        found_axes = {**parse({name: RATES[name] for name in used}), **space_of(method), **own}
        return {n: axis for n, axis in found_axes.items() if n not in given or n in own}
    except ValueError as error:
        raise ConfigError([str(error)]) from error


def _rates_used(config: Config) -> list[str]:
    """The learning rates with an effect: `lr` for all layers, `head_lr` for a head alone."""
    everything = not config.on_features and config.tune != "head"
    alone = config.on_features or config.tune != "all"
    return ["lr"] * everything + ["head_lr"] * alone


def spread(space: Space, count: int, seed: int = 0) -> list[dict[str, Any]]:
    """At most `count` points that cover a space evenly: a scrambled Sobol sequence, or every
    combination where there are only choices, and few.

    >>> [round(point["lr"], 4) for point in spread({"lr": Axis(1e-4, 1e-1, log=True)}, 4)]
    [0.0027, 0.0048, 0.0919, 0.0001]
    """
    if not space or count <= 0:
        return [{} for _ in range(max(count, 0))]
    if all(axis.choices for axis in space.values()):
        every = itertools.product(*(axis.choices for axis in space.values()))
        if math.prod(len(axis.choices) for axis in space.values()) <= count:
            return [dict(zip(space, values, strict=True)) for values in every]
    points = torch.quasirandom.SobolEngine(len(space), scramble=True, seed=seed).draw(count)
    axes = list(space.items())
    return [
        {name: axis.at(share) for (name, axis), share in zip(axes, point, strict=True)}
        for point in points.tolist()
    ]
