"""A registry of classes by name: create an instance from a name or a mapping.

A class of another package needs no name: `package.module:Class` is imported.
"""

import difflib
import fnmatch
import importlib
import inspect
import operator
from collections.abc import Callable, Mapping
from typing import Any, Generic, Self, TypeVar

T = TypeVar("T")


class Described:
    """Remembers the arguments of its constructor, from which it can be built again."""

    _given: tuple[tuple[object, ...], dict[str, object]]

    def __new__(cls, *given: object, **named: object) -> Self:
        made = super().__new__(cls)
        # Beside __init__, which a subclass writes as it likes; a copy takes it from the original.
        vars(made)["_given"] = (given, named)
        return made

    @property
    def arguments(self) -> dict[str, Any]:
        """The arguments by name."""
        given, named = self._given
        if not given:
            return dict(named)
        names = list(inspect.signature(type(self).__init__).parameters)[1 : 1 + len(given)]
        return {**dict(zip(names, given, strict=False)), **named}


class Registry(Generic[T]):
    """A table from names and aliases to classes.

    >>> from halftruth import losses
    >>> losses.names("ll-*")
    ['ll-cp', 'll-ct', 'll-r']
    """

    def __init__(
        self, kind: str, base: type[T] | None = None, others: Mapping[str, str] | None = None
    ) -> None:
        """`others`: names that people may expect here, and what they are."""
        self.kind, self.base, self.others = kind, base, dict(others or {})
        self._classes: dict[str, type[T]] = {}
        self._presets: dict[str, dict[str, object]] = {}
        self._aliases: dict[str, str] = {}
        # Classes of other packages, by package.module:Class.
        self._imported: dict[str, type[T]] = {}

    def register(self, name: str, *aliases: str, **preset: object) -> Callable[[type[T]], type[T]]:
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
        """The registered name of a name or alias; an unknown name is an error with close names.

        `package.module:Class` is imported, and stays as it is.
        """
        name = self._aliases.get(name, name)
        if name in self._classes:
            return name
        if self.base is not None and ":" in name:
            self._import(name, self.base)
            return name
        if name in self.others:
            raise ValueError(f"{name!r} is no {self.kind}: {self.others[name]}")
        known = [*self._classes, *self._aliases]
        close = difflib.get_close_matches(name.lower(), known, n=3, cutoff=0.5)
        close = close or [key for key in known if name and (name in key or key in name)]
        hint = f"did you mean {' or '.join(map(repr, close))}? " if close else ""
        raise ValueError(
            f"no {self.kind} is called {name!r}: {hint}The names are: {', '.join(self.names())}"
            + "; one of your own is package.module:Class" * (self.base is not None)
        )

    def _import(self, path: str, base: type[T]) -> None:
        """Import package.module:Class, unless it is known already; `base`: what it must be."""
        if path in self._imported:
            return
        place, _, name = path.partition(":")
        try:
            module = importlib.import_module(place)
        except Exception as error:
            hint = "mend the module, or install what it imports"
            if isinstance(error, ModuleNotFoundError) and f"{place}.".startswith(f"{error.name}."):
                first = place.partition(".")[0]
                hint = f"install its package, or put the folder that holds {first} on PYTHONPATH"
            raise ValueError(
                f"{self.kind} {path!r}: {place!r} cannot be imported "
                f"({type(error).__name__}: {error}); {hint}"
            ) from error
        try:
            found = operator.attrgetter(name)(module)
        except AttributeError:
            found = None
        if not (isinstance(found, type) and issubclass(found, base)):
            there = [
                key
                for key, value in vars(module).items()
                if isinstance(value, type) and issubclass(value, base) and value is not base
            ]
            raise ValueError(
                f"{self.kind} {path!r}: expected a subclass of {base.__module__}.{base.__name__}, "
                + (f"got {found!r}" if found is not None else f"but {place} has no {name!r}")
                + f"; the {self.kind} classes in {place} are: {', '.join(there) or 'none'}"
            )
        self._imported[path] = found

    def describe(self, what: "T | type[T]", stored: bool) -> tuple[str, dict[str, object]]:
        """The name and arguments from which `create` builds an instance, or a class, again.

        stored: they must be of use in another process, and be text, numbers and lists.
        """
        cls = what if isinstance(what, type) else type(what)
        if self.base is None or not issubclass(cls, self.base):
            raise TypeError(
                f"expected a name, package.module:Class, a {self.kind} or its class, got {what!r}"
            )
        own = what.arguments if isinstance(what, Described) else {}
        options = {key: self._as_plain(cls, key, v, stored) for key, v in own.items()}
        # The name that fixes most of the arguments.
        names = [
            name
            for name, known in self._classes.items()
            if known is cls and self._presets[name].items() <= options.items()
        ]
        if names and cls.__module__.startswith("halftruth."):
            name = max(names, key=lambda name: len(self._presets[name]))
            preset = self._presets[name]
            return name, {key: v for key, v in options.items() if key not in preset}
        path = f"{cls.__module__}:{cls.__qualname__}"
        if stored and (cls.__module__ == "__main__" or "<locals>" in cls.__qualname__):
            raise ValueError(
                f"{self.kind} {cls.__qualname__}: a run must find its class again, in config.yaml "
                f"as package.module:Class, and {path!r} cannot be imported; put the class at the "
                "top level of a module (a .py file on PYTHONPATH) and import it from there"
            )
        self._imported[path] = cls
        return path, options

    def _as_plain(self, cls: type, key: str, value: object, stored: bool) -> object:
        """An argument as config.yaml can hold it: text, numbers, lists and mappings."""
        if self.base is not None and isinstance(value, self.base):
            name, options = self.describe(value, stored)
            return {"name": name, **options}
        if hasattr(value, "tolist"):
            # Arrays, tensors and their numbers.
            value = value.tolist()
        if isinstance(value, list | tuple):
            return [self._as_plain(cls, key, one, stored) for one in value]
        if isinstance(value, dict):
            return {str(k): self._as_plain(cls, key, one, stored) for k, one in value.items()}
        if stored and not isinstance(value, str | int | float | None):
            raise ValueError(
                f"{self.kind} {cls.__qualname__}: config.yaml cannot hold its argument {key}, "
                f"{value!r:.80}; expected text, numbers, lists or mappings"
            )
        return value

    def get(self, name: str) -> type[T]:
        """The class of a name or alias."""
        name = self.resolve(name)
        return self._imported[name] if name in self._imported else self._classes[name]

    def signature(self, name: str) -> dict[str, inspect.Parameter]:
        """The arguments of a name, without those that its preset fixes."""
        name = self.resolve(name)
        found: dict[str, inspect.Parameter] = {}
        preset = self._presets.get(name, {})
        # **options of a class are the arguments of its parent.
        for cls in self.get(name).__mro__:
            if "__init__" not in vars(cls):
                continue
            parameters = list(inspect.signature(vars(cls)["__init__"]).parameters.values())[1:]
            for p in parameters:
                if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD) and p.name not in preset:
                    found.setdefault(p.name, p)
            if all(p.kind != p.VAR_KEYWORD for p in parameters):
                break
        return found

    def find_example(self, name: str, **options: object) -> float:
        """A number that a class accepts for its required arguments; 1 if it accepts none."""
        needed = [key for key, p in self.signature(name).items() if p.default is p.empty]
        for value in (1.5, 0.5, 1):
            try:
                self.create(name, **{**dict.fromkeys(needed, value), **options})
            except (ValueError, TypeError):
                continue
            return value
        return 1

    def create(self, what: "str | Mapping[str, Any] | T", **arguments: object) -> T:
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
        return self.get(name)(**self._presets.get(name, {}), **arguments)
