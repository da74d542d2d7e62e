"""The `natgrad` command: arguments in, one table or one JSON line out, exit codes that mean something.

Exit codes: 0 done; 2 something the user can correct (one sentence, no traceback); 130 and 143 after
a signal; 1 anything else. Everything heavy is imported inside the commands.
"""

import os
import signal
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from cyclopts import App, CycloptsError

import natgrad
from natgrad.cli import commands, relax, report, resume, runs, sample, sweep
from natgrad.cli.dotted import take_dotted
from natgrad.errors import InputError

TAKING_SETTINGS = (("train",), ("sweep",))
"""The commands that read dotted flags."""

app = App(
    name="natgrad",
    help="Natural gradients for probabilistic models: train and look at Helmholtz machines and networks.",
    version=natgrad.__version__,
    result_action="return_value",
    suppress_keyboard_interrupt=False,
)
app.command(commands.train)
app.command(resume.resume)
app.command(commands.evaluate)
app.command(sample.sample)
app.command(sweep.sweep)
app.command(commands.fisher)
app.command(report.report)
app.command(runs.runs)
app.command(relax.relax)
data = App(name="data", help="List, fetch and check data sets.")
data.command(commands.data_list, name="list")
data.command(commands.data_get, name="get")
data.command(commands.data_check, name="check")
app.command(data)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit with its code."""
    tokens = list(sys.argv[1:] if arguments is None else arguments)
    os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(_cache() / "xla"))
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.5")
    sys.exit(_guarded(lambda: _run(tokens), json="--json" in tokens))


def _run(tokens: list[str]) -> None:
    dotted, plain = take_dotted(tokens)
    refuse_dotted(plain, dotted)
    commands.DOTTED.clear()
    commands.DOTTED.update(dotted)
    try:
        app(plain, exit_on_error=False, print_error=False)
    except CycloptsError as error:
        raise InputError(_sentence(error)) from None


def refuse_dotted(plain: Sequence[str], dotted: Mapping[str, Any]) -> None:
    """Raise for dotted settings of a command that reads none; unknown commands are told by the parser."""
    words, given = app.parse_commands(plain)[0], ", ".join(sorted(dotted))
    if not dotted or words[:1] in TAKING_SETTINGS:
        return
    if words:
        raise InputError(f"{' '.join(words)} takes no settings of a training, got {given}; leave them out")
    if all(token.startswith("-") for token in plain):
        raise InputError(f"expected a command before {given}; write natgrad train, or sweep, before them")


def _guarded(action: Callable[[], None], *, json: bool) -> int:
    try:
        action()
    except InputError as error:
        _complain(str(error), json=json)
        return 2
    except KeyboardInterrupt as error:
        _complain(str(error) or "interrupted", json=json)
        return 128 + getattr(error, "signal", signal.SIGINT)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except Exception as error:
        traceback.print_exc()
        _complain(f"{type(error).__name__}: {error}", json=json)
        return 1
    return 0


def _complain(message: str, *, json: bool) -> None:
    if json:
        from natgrad.records.folder import json_line

        print(json_line({"error": message}))
    print(f"natgrad: {message}", file=sys.stderr)


def _sentence(error: Any) -> str:
    text = " ".join(str(error).split())
    return f"{text}{'' if text.endswith(('.', '?')) else '.'} Try `natgrad --help`."


def _cache() -> Path:
    if chosen := os.environ.get("NATGRAD_CACHE"):
        return Path(chosen)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "natgrad"
