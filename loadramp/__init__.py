"""loadramp: ramp load testing for LLM serving.

In notebooks and scripts (docs/library.md): ``loadramp.read(path)``, ``loadramp.run(scenario, base_url=...)``,
``await loadramp.run_async(...)``, ``loadramp.judge(frame)``, ``loadramp.compare(a, b)``, ``loadramp.history(path)``.
"""

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

from loadramp import features as features  # what they add is there before anything asks for it

if TYPE_CHECKING:
    from loadramp.comparison.library import ComparisonResult as ComparisonResult
    from loadramp.comparison.library import compare as compare
    from loadramp.library.api import judge as judge
    from loadramp.library.api import read as read
    from loadramp.library.api import run as run
    from loadramp.library.api import run_async as run_async
    from loadramp.library.results import RunResult as RunResult
    from loadramp.nightly.export import history as history
    from loadramp.registry import CannotMeasure as CannotMeasure
    from loadramp.registry import ScenarioError as ScenarioError

_HERE = {
    **{name: f"loadramp.library.api:{name}" for name in ("read", "run", "run_async", "judge")},
    "RunResult": "loadramp.library.results:RunResult",
    "ScenarioError": "loadramp.registry:ScenarioError",
    "CannotMeasure": "loadramp.registry:CannotMeasure",
}


def _offered() -> dict[str, str]:
    from loadramp.registry import FEATURES

    return _HERE | {name: where for feature in FEATURES.values() for name, where in feature.library.items()}


def __getattr__(name: str) -> Any:
    """Names of the library are imported when they are first used: ``loadramp --help`` needs none of them."""
    from loadramp.registry import reach

    if name not in (offered := _offered()):
        raise AttributeError(f"module 'loadramp' has no attribute {name!r}")
    return reach(offered[name])


def __dir__() -> list[str]:
    """What somebody sees who completes ``loadramp.`` in a notebook."""
    return sorted({*(name for name in globals() if name.startswith("__")), *_offered()})
