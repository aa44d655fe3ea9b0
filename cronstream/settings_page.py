"""docs/settings.md, from the models: ``python -m cronstream.settings_page > docs/settings.md``.

What a setting is for is said once, by the text below its field in ``settings.py``.
"""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Iterator

from pydantic.fields import FieldInfo

from cronstream import settings
from cronstream.settings import PREFIX, PROCESSES, Installation

_HEAD = """\
# Settings

Made from `cronstream/settings.py` by `python -m cronstream.settings_page > docs/settings.md`: edit there.

Each process reads its settings from the environment, when it starts. A `CRONSTREAM_` variable that no process knows is
refused, with the nearest name that exists. Lists are written with commas. [Operations](operations.md#settings) says how
the local stack is given settings, [deploying](deploy.md) which of them a process needs.
"""
_ORDER = (
    (Installation, "Every process, and the command"),
    (settings.Served, "Those that answer operators"),
    (settings.ConsumerSettings, "Those that consume in a group"),
    (settings.CoordinatorSettings, "Coordinators"),
    (settings.StreamsSettings, "Streams"),
    (settings.HistorySettings, "History sinks"),
    (settings.AlertSettings, "Alerts"),
    (settings.WorkerSettings, "Workers"),
    (settings.CaptureSettings, "The capture's watchdog"),
)
_UNITS = {
    "_per_second": "per second",
    "_seconds": "seconds",
    "_ms": "milliseconds",
    "_days": "days",
    "_mib": "MiB",
    "_bytes": "bytes",
}
_COMPUTED = {"node": "the host's name", "process_slots": "4 a core"}
_BOUNDS = {"ge": "at least", "gt": "above", "le": "at most"}


def page() -> str:
    """The whole page."""
    texts = _texts()
    return "\n".join([_HEAD, *(line for model, title in _ORDER for line in _section(model, title, texts))])


def _section(model: type[Installation], title: str, texts: dict[tuple[str, str], str]) -> Iterator[str]:
    processes = ", ".join(f"`{module}`" for module, reads in PROCESSES.items() if issubclass(reads, model))
    yield f"## {title}\n"
    yield f"Read by {processes}.\n"
    yield "| setting | default | unit | what for |"
    yield "| --- | --- | --- | --- |"
    for name in model.__annotations__:
        if name == "model_config":
            continue
        field = model.model_fields[name]
        unit = next((unit for end, unit in _UNITS.items() if name.endswith(end)), "")
        text = texts[model.__name__, name] + _bounds(field)
        yield f"| `{PREFIX}{name.upper()}` | {_default(name, field)} | {unit} | {text} |"
    yield ""


def _default(name: str, field: FieldInfo) -> str:
    if field.is_required():
        return "must be set"
    if field.default_factory is not None:
        return _COMPUTED[name]
    value = field.default
    if value is None or value == ():
        return "none"
    if isinstance(value, bool):
        return f"`{value}`".lower()
    return f"`{','.join(value) if isinstance(value, tuple) else value}`"


def _bounds(field: FieldInfo) -> str:
    said = [
        f"{words} {getattr(bound, sign):g}"
        for bound in field.metadata
        for sign, words in _BOUNDS.items()
        if getattr(bound, sign, None) is not None
    ]
    return f" ({', '.join(said)})" if said else ""


def _texts() -> dict[tuple[str, str], str]:
    """By class and field, the text below the field. Raises KeyError later for a field without one."""
    found = {}
    for model in ast.parse(inspect.getsource(settings)).body:
        if isinstance(model, ast.ClassDef):
            for field, below in zip(model.body, model.body[1:], strict=False):
                if isinstance(field, ast.AnnAssign) and isinstance(below, ast.Expr):
                    text = ast.literal_eval(below.value)
                    found[model.name, ast.unparse(field.target)] = " ".join(text.replace("``", "`").split())
    return found


if __name__ == "__main__":
    sys.stdout.write(page())
