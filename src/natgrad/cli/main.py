"""The `natgrad` command: arguments in, one table or one JSON line out, exit codes that mean something.

Exit codes: 0 done; 2 something the user can correct (one sentence, no traceback); 130 and 143 after
a signal; 1 anything else. Everything heavy is imported inside the commands.
"""

import contextlib
import difflib
import gc
import os
import re
import signal
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from cyclopts import App, CycloptsError, Parameter

import natgrad
from natgrad import errors
from natgrad.cli import (
    commands,
    kinds,
    relax,
    report,
    reproduce,
    resume,
    runs,
    settings_help,
    streams,
    supervised,
    sweep,
)
from natgrad.cli.dotted import strict, take_named, take_settings
from natgrad.config import names
from natgrad.errors import InputError

SETTABLE = ("train", "sweep")  # commands that take settings
_GARBAGE = 100_000  # new objects between two looks for garbage; tracing makes many that stay
HOSTS = ("--mesh", "--coordinator", "--processes", "--process", "--cluster", "--peer-timeout")
MEETING = ("--coordinator", "--cluster")  # how the processes of a training find each other
TRAIN = ("--out", "--quiet", "--verbose", "--tensorboard", *HOSTS, "--dry-run", "--json", "--help")
"""Flags of a training that are not settings."""

OF_JAX = {  # what JAX says of the environment that it was started in, and what to do
    "Unable to initialize backend": "unset JAX_PLATFORMS, or name a device that is here",
    "Disable jit is not supported": "natgrad compiles its steps: unset JAX_DISABLE_JIT",
    "for environment 'JAX_": "unset it",
}


def command_line() -> App:
    """The commands that every kind of model has."""
    app = App(
        name="natgrad",
        help="Natural gradients for probabilistic models: train models, look at them, compare them.",
        version=natgrad.__version__,
        result_action="return_value",
        suppress_keyboard_interrupt=False,
        default_parameter=Parameter(converter=strict),
    )
    for command in (commands.train, resume.resume, sweep.sweep, report.report, runs.runs, relax.relax):
        app.command(command)
    app.command(reproduce.reproduce)
    data = App(name="data", help="List, fetch and check data sets.")
    data.command(commands.data_list, name="list")
    data.command(commands.data_get, name="get")
    data.command(commands.data_check, name="check")
    app.command(data)
    return app


app = command_line()


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit with its code."""
    tokens = list(sys.argv[1:] if arguments is None else arguments)
    gc.set_threshold(_GARBAGE)
    streams.replace_closed()
    streams.widen()
    streams.fold_warnings()
    os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(_cache() / "xla"))
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
    several = any(token.split("=")[0] in MEETING for token in tokens)
    sys.exit(supervised.one_of_several(tokens, _exit_code) if several else _exit_code(tokens))


def _exit_code(tokens: list[str]) -> int:
    return _guarded(lambda: _run(tokens), json="--json" in tokens)


def _run(tokens: list[str]) -> None:
    given, plain = take_settings(tokens)
    name = next((token for token in plain if not token.startswith("-")), "")
    if name == "train":
        given, plain = take_named(tokens, TRAIN)
    if given and name not in SETTABLE:
        refuse_settings(plain, sorted(given))
    commands.GIVEN.clear()
    commands.GIVEN.update(given)
    try:
        _call(name, plain)
    except CycloptsError as error:
        raise InputError(_sentence(error, name)) from None


def _call(name: str, tokens: list[str]) -> None:
    """A command of every kind, or one that the kind of a run brings with it."""
    if name and name not in app and name in kinds.command_names():
        return _of_kind(name, tokens)
    panels: list[Any] = []
    if name == "train" and any(token in kinds.HELP for token in tokens):
        panels = settings_help.help_panels(commands.GIVEN.get("model"), commands.GIVEN.get("method"))
    (app if name in app else _listing())(tokens, exit_on_error=False, print_error=False)
    return settings_help.show(panels) if panels else None


def _listing() -> App:
    """For help: with the commands that are known only when all kinds are."""
    whole = command_line()
    for name, about in kinds.command_names().items():
        whole.command(App(name=name, help=about))
    return whole


def _of_kind(name: str, tokens: list[str]) -> None:
    json, at = "--json" in tokens, tokens.index(name)
    rest = [token for token in (*tokens[:at], *tokens[at + 1 :]) if token != "--json"]
    result = kinds.call(name, rest)
    if result is not None:
        title = str(result.get("run", name))
        shown = result if json else {key: value for key, value in result.items() if key != "run"}
        commands._print(shown, json=json, title=title)


def refuse_settings(tokens: Sequence[str], given: Sequence[str]) -> None:
    """Raise for settings of a command that reads none; unknown commands are refused by the parser."""
    words, flags = _listing().parse_commands(tokens)[0], ", ".join(given)
    if words:
        raise InputError(f"{' '.join(words)} takes no settings of a training, got {flags}; leave them out")
    if all(token.startswith("-") for token in tokens):
        raise InputError(f"expected a command before {flags}; write natgrad train, or sweep, before them")


def _guarded(action: Callable[[], None], *, json: bool) -> int:
    """Do something and turn whatever goes wrong into an exit code."""
    try:
        _check_place()
        action()
        sys.stdout.flush()
    except BrokenPipeError:
        code = streams.BROKEN
    except KeyboardInterrupt as error:
        streams.complain(str(error) or "interrupted", to_json=json)
        code = 128 + getattr(error, "signal", signal.SIGINT)
    except Exception as error:
        if supervised.is_lost(error):
            return supervised.LOST
        sentence = _correctable(error)
        if not sentence:
            with contextlib.suppress(OSError):
                traceback.print_exc()
        streams.complain(sentence or f"{type(error).__name__}: {error}", to_json=json)
        code = 2 if sentence else 1
    else:
        return 0
    streams.settle()
    return code


def _check_place() -> None:
    try:
        os.getcwd()
    except OSError:
        raise InputError("the working directory no longer exists; change to another one") from None


def _correctable(error: Exception) -> str:
    """What a user can do about an error, in one sentence; empty where it is ours."""
    if isinstance(error, InputError):
        return str(error)
    text = errors.clipped(" ".join(str(error).split()), 120)
    if isinstance(error, MemoryError) or "RESOURCE_EXHAUSTED" in text:
        return (
            f"this takes more memory than there is ({text}); "
            "use fewer samples or rows at a time, a smaller batch, or a smaller model"
        )
    if isinstance(error, OSError):
        return streams.refused(error)
    return next((f"{text}; {advice}" for sign, advice in OF_JAX.items() if sign in text), "")


def _sentence(error: Any, name: str) -> str:
    text = " ".join(str(error).split())
    text = _with_nearest(text) if name in SETTABLE else _of_another_kind(text, name)
    known = name in app or name in kinds.command_names()
    help_of = f"natgrad {name} --help" if known else "natgrad --help"
    return f"{text}{'' if text.endswith(('.', '?')) else '.'} Try `{help_of}`."


def _of_another_kind(text: str, name: str) -> str:
    """The complaint of an unknown flag, if it is a setting of trainings, or is for runs of other kinds."""
    flag = re.match(r"Unknown option: --([\w-]+)", text)
    if flag is None:
        return text
    if name in app and flag[1].replace("-", "_") in names.short_names():
        return f"{name} takes no settings of a training, got --{flag[1]}; leave it out."
    if others := kinds.takers(name, flag[1]):
        return f"--{flag[1]} of {name} is for runs of {', '.join(others)}, and this is not one of them."
    return text


def _with_nearest(text: str) -> str:
    """The complaint of an unknown flag with the flag or the setting that is nearest to it."""
    flag = re.match(r"Unknown option: --([\w-]+)", text)
    if flag is None:
        return text
    plain, _, suggested = text.partition(" Did you mean --")
    flags = [short.replace("_", "-") for short in names.short_names()] + [suggested.rstrip("?.")]
    near = difflib.get_close_matches(flag[1], flags, n=1)
    return f"{plain} Did you mean --{near[0]}?" if near else text


def _cache() -> Path:
    if chosen := os.environ.get("NATGRAD_CACHE"):
        return Path(chosen)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "natgrad"
