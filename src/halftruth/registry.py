"""A registry of classes by name: create an instance from a name or a mapping."""

import difflib
import fnmatch
import inspect
from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Registry(Generic[T]):
    """A table from names and aliases to classes.

    >>> from halftruth import losses
    >>> losses.names("ll-*")
    ['ll-cp', 'll-ct', 'll-r']
    """

    def __init__(self, kind: str, base: type[T] | None = None) -> None:
        self.kind, self.base = kind, base
        self._classes: dict[str, type[T]] = {}
        self._presets: dict[str, dict[str, Any]] = {}
        self._aliases: dict[str, str] = {}

    def register(self, name: str, *aliases: str, **preset: Any) -> Callable[[type[T]], type[T]]:
        """Class decorator; `preset` fixes arguments, so that one class can have several names."""

        def add(cls: type[T]) -> type[T]:
            for key in (name, *aliases):
                if key in self._classes or key in self._aliases:
                    raise ValueError(f"the {self.kind} name {key!r} is already taken")
            self._classes[name] = cls
            self._presets[name] = preset
            self._aliases.update(dict.fromkeys(aliases, name))
            return cls

        return add

    def names(self, pattern: str = "*") -> list[str]:
        """All registered names that match a shell pattern, sorted; aliases are left out."""
        return sorted(name for name in self._classes if fnmatch.fnmatch(name, pattern))

    def aliases(self, name: str) -> list[str]:
        """The other names of `name`."""
        return sorted(alias for alias, target in self._aliases.items() if target == name)

    def resolve(self, name: str) -> str:
        """The registered name of a name or alias; an unknown name is an error with close names."""
        name = self._aliases.get(name, name)
        if name in self._classes:
            return name
        known = [*self._classes, *self._aliases]
        close = difflib.get_close_matches(name.lower(), known, n=3, cutoff=0.5)
        close = close or [key for key in known if name and (name in key or key in name)]
        hint = f"did you mean {' or '.join(map(repr, close))}? " if close else ""
        raise ValueError(
            f"no {self.kind} is called {name!r}: {hint}The names are: {', '.join(self.names())}"
        )

    def get(self, name: str) -> type[T]:
        """The class of a name or alias."""
        return self._classes[self.resolve(name)]

    def signature(self, name: str) -> dict[str, inspect.Parameter]:
        """The arguments of a name, without those that its preset fixes."""
        name = self.resolve(name)
        found: dict[str, inspect.Parameter] = {}
        # **options of a class are the arguments of its parent.
        for cls in self._classes[name].__mro__:
            if "__init__" not in vars(cls):
                continue
            parameters = list(inspect.signature(vars(cls)["__init__"]).parameters.values())[1:]
            for p in parameters:
                if p.kind != p.VAR_KEYWORD and p.name not in self._presets[name]:
                    found.setdefault(p.name, p)
            if all(p.kind != p.VAR_KEYWORD for p in parameters):
                break
        return found

    def create(self, what: "str | Mapping[str, Any] | T", **arguments: Any) -> T:
        """An instance from a name or from a mapping with a "name"; an instance is returned."""
        if isinstance(what, Mapping):
            options = {**what, **arguments}
            if "name" not in options:
                raise ValueError(f'expected a "name" in the {self.kind} mapping, got {dict(what)}')
            return self.create(options.pop("name"), **options)
        if not isinstance(what, str):
            if not isinstance(what, self.base or tuple(self._classes.values())):
                raise TypeError(
                    f'expected a {self.kind}: a name, a mapping with a "name", or a built '
                    f"{self.kind}, got {what!r}. The names are: {', '.join(self.names())}"
                )
            if arguments:
                raise TypeError(
                    f"the {self.kind} is already built ({type(what).__name__}): "
                    f"set {', '.join(arguments)} when you create it"
                )
            return what
        name = self.resolve(what)
        known = self.signature(name)
        for key in arguments:
            if key not in known:
                close = difflib.get_close_matches(key, known, n=1)
                hint = f"did you mean {close[0]!r}? " if close else ""
                raise TypeError(
                    f"{self.kind} {name!r} takes no argument {key!r}: {hint}"
                    f"It takes: {', '.join(known)}"
                )
        missing = [key for key, p in known.items() if p.default is p.empty and key not in arguments]
        if missing:
            raise TypeError(
                f"{self.kind} {name!r} needs {', '.join(missing)}: "
                f"for example create({name!r}, {missing[0]}=...)"
            )
        return self._classes[name](**self._presets[name], **arguments)
