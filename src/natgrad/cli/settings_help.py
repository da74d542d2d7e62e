"""The flags of settings in `natgrad train --help`: those that all kinds share, then each kind's own."""

from collections.abc import Iterator, Mapping, Sequence

from cyclopts.help import DefaultFormatter, HelpEntry, HelpPanel
from rich.console import Console

from natgrad import config
from natgrad.cli import wording
from natgrad.config import names
from natgrad.config.names import Reader
from natgrad.models import registry

_MORE = "Every other setting is a dotted flag, for example --evaluation.every 5; --dry-run shows them all."


def show(panels: Sequence[HelpPanel]) -> None:
    """Print groups of flags."""
    console, draw = Console(), DefaultFormatter()
    for panel in panels:
        draw(console, console.options, panel)
    console.print(_MORE, highlight=False)


def help_panels(kind: str | None = None, method: str | None = None) -> list[HelpPanel]:
    """The flags of all kinds, of one, or of one method of it: common ones first, then each spec's own."""
    return list(_panels(_readers(kind, method)))


def _panels(readers: Sequence[Reader]) -> Iterator[HelpPanel]:
    yield HelpPanel(format="parameter", title="Settings", entries=list(_entries(names.COMMON, readers)))
    for spec in registry.specs():
        own = [reader for reader in readers if reader in spec.settings]
        if own:
            kinds = list(dict.fromkeys(kind for kind, _ in own))
            methods = dict.fromkeys(method for _, method in own)
            about = [f"{kind}: {spec.kinds[kind]}" for kind in kinds]
            about += [f"--method {method}: {spec.methods[method]}" for method in methods]
            yield HelpPanel(
                format="parameter",
                title=f"Settings of {', '.join(kinds)}",
                description="\n".join(about),
                entries=list(_entries(spec.short, own)),
            )


def _readers(kind: str | None, method: str | None) -> list[Reader]:
    if kind is None and method is None:
        return [reader for reader, _ in names.all_settings()]
    chosen = kind or registry.DEFAULT
    settings = registry.spec_of(chosen).settings
    if method is None:
        return [reader for reader in settings if reader[0] == chosen]
    return [config.reader_of({"model": {"kind": chosen}, "method": method})]


def _entries(short: Mapping[str, str], readers: Sequence[Reader]) -> Iterator[HelpEntry]:
    """An entry for each flag that one of the readers has."""
    settings = [(reader, registry.spec_of(reader[0]).settings[reader]) for reader in readers]
    rows = wording.setting_rows(settings)
    for flag, name in short.items():
        if found := [row for row in rows if row.name == name]:
            yield _entry(flag, found)


def _entry(flag: str, rows: list[wording.Row]) -> HelpEntry:
    takes = " | ".join(dict.fromkeys(choice for row in rows for choice in row.allowed.split(" | ")))
    given = wording.defaults_text({reader: text for row in rows for reader, text in row.defaults.items()})
    if rows[0].name == "model.kind":
        given = registry.DEFAULT
    if rows[0].name == "method":
        takes, given = "see below", "the first of the kind"
    return HelpEntry(
        positive_names=(f"--{flag.replace('_', '-')}",),
        description=f"{rows[0].about} [{takes}]",
        default=given,
    )
