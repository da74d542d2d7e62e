"""The page of all settings, `docs/settings.md`, from the same classes that validate them.

python -m natgrad.cli.settings_page > docs/settings.md
"""

from collections.abc import Iterator, Mapping

from natgrad.cli import wording
from natgrad.cli.wording import Row
from natgrad.config import names
from natgrad.config.names import Reader
from natgrad.models import registry
from natgrad.models.registry import Spec

_HEAD = """# Settings

A setting's dotted name is its place in the TOML file and, after two dashes, its flag; everyday settings have
a short flag as well. Each kind of model and each method has exactly the settings below, and refuses all
others in one sentence. `natgrad train --dry-run` prints those of a training with their values. This page is
made by `python -m natgrad.cli.settings_page > docs/settings.md`.
"""
_TABLE = "| setting | flag | default | takes | what it is |"


def settings_markdown() -> str:
    """The page as Markdown: what several kinds share, then each kind's own by the methods that read it."""
    rows = wording.setting_rows(names.all_settings())
    parts = [_HEAD, "## Shared by several kinds", *_shared(rows)]
    for spec in registry.specs():
        own = [row for row in rows if set(row.defaults) <= set(spec.settings)]
        parts += [f"## {', '.join(spec.kinds)}", *_about(spec), *_groups(own, spec)]
    return "\n\n".join(part.rstrip() for part in parts) + "\n"


def _shared(rows: list[Row]) -> Iterator[str]:
    """One table of what is read by kinds of different specs, and by whom."""
    every = [reader for reader, _ in names.all_settings()]
    fixed = {"model.kind": registry.DEFAULT, "method": "the first of the kind's list"}
    lines = [f"{_TABLE} read by |", "| --- | --- | --- | --- | --- | --- |"]
    for name in dict.fromkeys(row.name for row in rows):
        found = [row for row in rows if row.name == name]
        if name in fixed:
            merged = found[0]._replace(allowed=found[0].allowed if name == "model.kind" else "see below")
            lines.append(_line(merged, names.COMMON, fixed[name], "all"))
            continue
        lines += [
            _line(
                row,
                names.short_names(),
                wording.defaults_text(row.defaults),
                _read_by(list(row.defaults), every),
            )
            for row in found
            if not any(set(row.defaults) <= set(spec.settings) for spec in registry.specs())
        ]
    yield "\n".join(lines)


def _about(spec: Spec) -> Iterator[str]:
    yield "\n".join(f"- `{kind}`: {about}" for kind, about in spec.kinds.items())
    lines = [f"| `{name}` | {about} |" for name, about in spec.methods.items()]
    yield "\n".join(["| method | what it is |", "| --- | --- |", *lines])


def _groups(rows: list[Row], spec: Spec) -> Iterator[str]:
    """A table for every set of kinds and methods that read the same settings."""
    groups: dict[tuple[Reader, ...], list[Row]] = {}
    for row in rows:
        if row.name not in ("model.kind", "method"):
            groups.setdefault(tuple(row.defaults), []).append(row)
    for readers, found in sorted(groups.items(), key=lambda group: -len(group[0])):
        yield f"### Read by {_read_by(list(readers), list(spec.settings))}"
        lines = [_line(row, spec.short, wording.defaults_text(row.defaults)) for row in found]
        yield "\n".join([_TABLE, "| --- | --- | --- | --- | --- |", *lines])


def _read_by(readers: list[Reader], among: list[Reader]) -> str:
    """Who reads a setting, or who does not, whichever is shorter."""
    rest = [reader for reader in among if reader not in readers]
    if not rest:
        return "all"
    one, other = wording.readers_text(readers, among), f"all but {wording.readers_text(rest, among)}"
    return min(one, other, key=len)


def _line(row: Row, short: Mapping[str, str], default: str, *more: str) -> str:
    flags = [f"`--{flag.replace('_', '-')}`" for flag, name in short.items() if name == row.name]
    cells = [f"`{row.name}`", " ".join(flags), default, row.allowed, row.about, *more]
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


if __name__ == "__main__":
    print(settings_markdown(), end="")
