"""Commands that a kind of model brings with it, such as `natgrad evaluate RUN`: the run says which kind.

A command is a function of the kind whose first parameter is the run's folder and that returns a dict; its
signature and docstring are its flags and its help.
"""

import inspect
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from cyclopts import App, Parameter

from natgrad.cli.dotted import strict
from natgrad.errors import InputError
from natgrad.models import registry
from natgrad.records.folder import open_run

HELP = ("--help", "-h")
JSON = "--json prints exactly one JSON line on stdout."


def command_names() -> dict[str, str]:
    """The commands that any kind has, each with a line about it."""
    places = {
        name: place for spec in reversed(list(registry.specs())) for name, place in spec.commands.items()
    }
    return {name: (_function(place).__doc__ or "").split("\n")[0] for name, place in reversed(places.items())}


def call(name: str, arguments: Sequence[str]) -> dict[str, Any] | None:
    """What the command returns for the kind of its run; None where it showed its help."""
    kind, tokens = _taken(arguments)
    asked, run = any(token in HELP for token in tokens), _run_of(tokens)
    if kind is None and asked and not _is_run(run):
        _help(name)
        return None
    if kind is None and not run:
        raise InputError(f"{name} requires an argument: the folder of a run that `natgrad train` wrote")
    place = _place(name, kind or open_run(run)[1].model.kind)
    found = _app(name, place)(tokens, exit_on_error=False, print_error=False)
    return None if asked else found


def _place(name: str, kind: str) -> str:
    commands = registry.spec_of(kind).commands
    if name not in commands:
        known = (
            f"its commands are {', '.join(commands)}"
            if len(commands) > 1
            else f"its only command is {', '.join(commands)}"
        )
        raise InputError(
            f"a model of kind {kind} has no command {name}; {known if commands else 'it has none'}"
        )
    return commands[name]


def takers(name: str, flag: str) -> list[str]:
    """The kinds whose command takes a flag."""
    own = flag.replace("-", "_")
    return [
        kind
        for spec in registry.specs()
        if name in spec.commands and own in inspect.signature(_function(spec.commands[name])).parameters
        for kind in spec.kinds
    ]


def _help(name: str) -> None:
    """The help of every kind that has the command."""
    for spec in registry.specs():
        if name in spec.commands:
            print(f"Runs of {', '.join(spec.kinds)}:")
            _app(name, spec.commands[name]).help_print()


def _app(name: str, place: str) -> App:
    app = App(
        name=f"natgrad {name}",
        help_epilogue=JSON,
        version_flags=(),
        result_action="return_value",
        default_parameter=Parameter(converter=strict),
    )
    app.default(_function(place))
    return app


def _function(place: str) -> Callable[..., Any]:
    return registry.resolve_reference(place)


def _taken(arguments: Sequence[str]) -> tuple[str | None, list[str]]:
    """The kind that --model names, and the other arguments."""
    kind, rest, remaining = None, [], iter(arguments)
    for token in remaining:
        if token == "--model" or token.startswith("--model="):
            kind = token.partition("=")[2] or next(remaining, "")
        else:
            rest.append(token)
    return kind, rest


def _run_of(tokens: Sequence[str]) -> str:
    """The run folder among the arguments or, where none of them is one, what stands in its place."""
    words = [token for token in tokens if not token.startswith("-")]
    before = dict(zip(tokens, ["", *tokens], strict=False))
    alone = [word for word in words if not before[word].startswith("--")]
    return next((word for word in [*filter(_is_run, words), *alone]), "")


def _is_run(word: str) -> bool:
    return bool(word) and (Path(word) / "config.toml").is_file()
