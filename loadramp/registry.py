"""The one extension mechanism: a table's ``kind`` picks a function, its other keys are that function's arguments.

Knows nobody. ``kind = "package.module:function"`` reaches a function outside the repository.
"""

import difflib
import importlib
import inspect
import math
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin, get_type_hints

Common = TypeVar("Common")


class ScenarioError(ValueError):
    """The scenario, an option or a command line is wrong: names the place and what is allowed. Exit code 2."""


class CannotMeasure(RuntimeError):  # noqa: N818 (says what is the case)
    """The endpoint, the disk, a worker or a limit of this machine is in the way. Exit code 1."""


FOREIGN_ERRORS = (
    ArithmeticError, AssertionError, AttributeError, EOFError, ImportError, LookupError, NameError, OSError,
    RuntimeError, StopIteration, SyntaxError, SystemExit, TypeError, ValueError,
)  # fmt: skip
"""What a module or function that somebody names in a scenario may raise."""

Returns = Callable[..., str]
"""``f(result, *args)``: what was expected where ``result`` is not it, else empty."""


@dataclass(slots=True, frozen=True)
class Choice:
    """A function picked by kind, with its options bound: what a ``kind`` table becomes."""

    kind: str
    function: Callable[..., Any]
    options: Mapping[str, Any] = field(default_factory=dict)
    where: str = ""
    """How errors name the table; empty: the function is one of ours."""
    returns: Returns | None = None
    """Checks what a function from outside returns."""

    def option(self, name: str) -> Any:
        """The value of an option: as the table gives it, else the function's own default, else that of a choice which
        this one goes on with. KeyError: none takes it."""
        if name in self.options:
            return self.options[name]
        own = options_of(self.function)
        further = next((value for value in self.options.values() if isinstance(value, Choice)), None)
        return own[name][1] if name in own or further is None else further.option(name)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """What the function returns.

        Raises:
            ScenarioError: one from outside fails, or returns what cannot be used.
        """
        if not self.where:
            return self.function(*args, **kwargs, **self.options)
        try:
            result = self.function(*args, **kwargs, **self.options)
            wrong = self.returns(result, *args) if self.returns else ""
        except (ScenarioError, CannotMeasure):
            raise
        except FOREIGN_ERRORS as error:
            raise ScenarioError(f"{self.where} kind: {self.kind!r} failed: {error_with_type(error)}") from error
        if wrong:
            raise ScenarioError(f"{self.where} kind: {self.kind!r} returned {_short(result)}; {wrong}")
        return result


@dataclass(slots=True, frozen=True)
class Feature:
    """What a feature adds to the core. Functions are written ``package.module:function`` and imported when needed."""

    tables: Mapping[str, str] = field(default_factory=dict)
    """Its tables of a scenario: name to ``f(table, where)``, which binds one or raises ScenarioError."""
    check: str = ""
    """``f(scenario)``, which has one of the tables: raises ScenarioError where it cannot be judged by."""
    rates: str = ""
    """``f(scenario)``, which has one of the tables: requests a second that its command offers beside its ramp."""
    commands: str = ""
    """``f() -> list[click.Command]``."""
    previews: Mapping[str, str] = field(default_factory=dict)
    """Name of a table to ``f(scenario, read) -> list[Part]``, what ``loadramp plan`` shows of its command."""
    directories: Mapping[str, str] = field(default_factory=dict)
    """Name of the file that marks a directory of its own to ``f(path, as_json) -> exit code``, for ``report``."""
    exports: Mapping[str, str] = field(default_factory=dict)
    """Kind of a directory (``a history``) to ``f(source, form) -> files``, None where the source is not of that kind;
    ``f(None, "")`` gives the names of the formats as keys."""
    library: Mapping[str, str] = field(default_factory=dict)
    """Name of a function that ``import loadramp`` offers to where it is."""
    evidence: Mapping[str, str] = field(default_factory=dict)
    """Name to a function that another feature may use where both are there."""


FEATURES: dict[str, Feature] = {}
"""By name; filled by ``loadramp.features``."""


def evidence_of(name: str) -> Callable[..., Any] | None:
    """The function of that name that a feature offers to others; None where no feature does."""
    place = next((feature.evidence[name] for feature in FEATURES.values() if name in feature.evidence), None)
    return None if place is None else reach(place)


def reach(where: str) -> Callable[..., Any]:
    """The function of a feature that is written ``package.module:function``."""
    module_name, _, name = where.partition(":")
    function: Callable[..., Any] = getattr(importlib.import_module(module_name), name)
    return function


def data_of(package: str, name: str) -> dict[str, Any]:
    """The TOML file ``name`` that stands beside the modules of ``package``."""
    import tomllib
    from importlib import resources

    return tomllib.loads(resources.files(package).joinpath(name).read_text("utf-8"))


def error_with_type(error: BaseException) -> str:
    """An error in one line: its type and what it says."""
    return f"{type(error).__name__}: {' '.join(str(error).split())}".rstrip(": ")


def error_message(error: BaseException) -> str:
    """What an error says; one of a file is the file and why, without a number."""
    if isinstance(error, OSError) and error.filename is not None and error.strerror:
        return f"{error.filename}: {error.strerror}"
    return str(error)


def _short(value: Any) -> str:
    text = " ".join(repr(value).split())
    return text if len(text) <= 80 else f"{text[:77]}..."


@cache
def options_of(function: Callable[..., Any]) -> Mapping[str, tuple[Any, Any]]:
    """The keys a table may carry for ``function``: keyword-only parameters, or all fields of a dataclass.

    Returns name -> (annotation, default); the default is ``inspect.Parameter.empty`` where the key must be given. Kept:
    to evaluate annotations is all but what it takes to read a scenario.
    """
    hints = get_type_hints(function.__init__ if inspect.isclass(function) else function, include_extras=True)
    fields_of_class = inspect.isclass(function)
    return {
        name: (hints.get(name, Any), parameter.default)
        for name, parameter in inspect.signature(function).parameters.items()
        if parameter.kind is parameter.KEYWORD_ONLY or (fields_of_class and name != "self")
    }


def find(kind: str, registry: Mapping[str, Callable[..., Any]], where: str) -> Callable[..., Any]:
    """The function called ``kind``: from the registry, or imported when written ``package.module:function``."""
    if kind in registry:
        return registry[kind]
    if ":" not in kind:
        raise ScenarioError(f"{where} kind: no {kind!r}{hint(kind, registry)}; there are {_names(registry)}")
    module_name, _, name = kind.partition(":")
    try:
        value = getattr(importlib.import_module(module_name), name)
    except FOREIGN_ERRORS as error:
        raise ScenarioError(f"{where} kind: cannot reach {kind!r}: {error_with_type(error)}") from None
    if not callable(value):
        raise ScenarioError(f"{where} kind: {kind!r} is not a function")
    try:
        options_of(value)
    except FOREIGN_ERRORS as error:
        raise ScenarioError(f"{where} kind: {kind!r}: its arguments are not known: {error_with_type(error)}") from None
    result: Callable[..., Any] = value
    return result


def bind_options(table: Mapping[str, Any], function: Callable[..., Any], where: str) -> dict[str, Any]:
    """Check the keys of ``table`` against ``function`` and convert each value to the type the function declares."""
    allowed = options_of(function)
    bound: dict[str, Any] = {}
    for key, value in table.items():
        if key not in allowed:
            raise ScenarioError(f"{where} {key}: unknown key{hint(key, allowed)}; allowed: {_names(allowed) or 'none'}")
        bound[key] = convert(value, allowed[key][0], f"{where} {key}")
    missing = [
        name for name, (_, default) in allowed.items() if default is inspect.Parameter.empty and name not in bound
    ]
    if missing:
        raise ScenarioError(f"{where} {missing[0]}: missing; this table needs {_names(missing)}")
    return bound


def bind(
    table: Mapping[str, Any],
    registry: Mapping[str, Callable[..., Any]],
    where: str,
    default_kind: str,
    returns: Returns | None = None,
    common: Collection[str] = (),
) -> Choice:
    """Turn a ``kind`` table into a Choice.

    Args:
        table: the TOML table, with or without ``kind``.
        registry: kind -> function.
        where: how errors name the table, e.g. ``chat.toml: [arrivals]``.
        default_kind: used when the table has no ``kind``.
        returns: checks what a function that is not in the registry returns.
        common: keys that a table may have whatever its kind; they are left aside.
    """
    options = {key: value for key, value in table.items() if key not in common}
    kind = convert(options.pop("kind", default_kind), str, f"{where} kind")
    function = find(kind, registry, where)
    _refuse_others(options, kind, function, registry, where, common)
    bound = bind_options(options, function, where)
    return Choice(kind, function, bound) if kind in registry else Choice(kind, function, bound, where, returns)


def bind_with(
    table: Mapping[str, Any],
    registry: Mapping[str, Callable[..., Any]],
    where: str,
    default_kind: str,
    common: type[Common],
    returns: Returns | None = None,
) -> tuple[Choice, Common]:
    """The same for a table that may have the fields of the dataclass ``common``, too: its Choice, and these fields."""
    shared = inspect.signature(common).parameters
    choice = bind(table, registry, where, default_kind, returns, shared)
    return choice, common(**bind_options({key: table[key] for key in table if key in shared}, common, where))


def _refuse_others(
    options: Mapping[str, Any],
    kind: str,
    function: Callable[..., Any],
    registry: Mapping[str, Callable[..., Any]],
    where: str,
    common: Collection[str],
) -> None:
    """Raise ScenarioError where a key is unknown to the kind: it is misspelt, or (all of these) of another kind."""
    allowed = options_of(function)
    unknown = [key for key in options if key not in allowed]
    if not unknown:
        return
    kinds = {key: [name for name, other in registry.items() if key in options_of(other)] for key in unknown}
    others = [key for key in unknown if kinds[key]]
    wrong = f"{unknown[0]}: unknown key{hint(unknown[0], [*allowed, *common])}"
    if others:
        theirs = " or ".join(f"{name!r}" for name in dict.fromkeys(name for key in others for name in kinds[key]))
        wrong = f"{', '.join(others)}: not for kind = {kind!r}, only for {theirs}; leave out what is not for it"
    every = f"; and for every kind: {_names(common)}" if common else ""
    raise ScenarioError(f"{where} {wrong}; allowed: {_names(allowed) or 'none'}{every}")


def convert(value: Any, annotation: Any, where: str) -> Any:
    """``value`` as ``annotation``, or a ScenarioError that says what was expected. No number here is infinite."""
    import msgspec  # `loadramp --help` needs none of it

    try:
        converted = msgspec.convert(value, annotation)
    except msgspec.ValidationError as error:
        words = _words_of(annotation)
        allowed = f" (allowed: {_names(words)})" if words else ""
        raise ScenarioError(f"{where}: {str(error).replace('`', '')}{allowed}; got {value!r}") from None
    parts = converted if isinstance(converted, list | tuple) else [converted]
    if any(isinstance(part, float) and not math.isfinite(part) for part in parts):
        raise ScenarioError(f"{where}: Expected a finite number; got {value!r}")
    return converted


def _words_of(annotation: Any) -> list[str]:
    """The words that ``annotation`` lists (``Literal``), alone or beside other types."""
    if get_origin(annotation) is Literal:
        return [str(word) for word in get_args(annotation)]
    inner = get_args(annotation)[:1] if get_origin(annotation) is Annotated else get_args(annotation)
    return [word for part in inner for word in _words_of(part)]


def _names(names: Iterable[str]) -> str:
    return ", ".join(sorted(names))


OTHER_NAMES = {
    "sharegpt": "conversations",
    "share_gpt": "conversations",
    "chat": "conversations",
    "mooncake": "trace",
    "azure": "trace",
    "random": "uniform",
    "prefix_repetition": "shared_prefix",
    "exponential": "poisson",
}
"""What other load generators call a kind: too unlike our name for a match of letters."""


def hint(name: str, names: Iterable[str]) -> str:
    """What was probably meant, to put behind ``name``; empty where nothing is near."""
    known = list(names)
    other = OTHER_NAMES.get(name.lower().replace("-", "_"))
    close = [other] if other in known else difflib.get_close_matches(name, known, n=1)
    return f" (did you mean {close[0]!r}?)" if close else ""
