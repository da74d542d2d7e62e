"""Every command and every Python block of README and docs runs as printed, page by page, in an empty folder.

A comment before a block may say `shorter: A => B; C => D`, which replaces text so that a test is quick, or
`not run: REASON`. A comment `setup`, with Python code in it, makes what a page takes for granted. A
`console` block has commands after `$`; below one that is refused stands its error.
"""

import contextlib
import io
import itertools
import re
import shlex
from pathlib import Path
from typing import NamedTuple

import jax
import pytest

from natgrad.cli.main import main

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(
    r"^<!-- setup\n(?P<setup>.*?)^-->$"
    r"|(?:^<!-- (?P<note>[^\n]*) -->\n)?^```(?P<language>\w*)\n(?P<text>.*?)^```$",
    re.M | re.S,
)


LANGUAGES = ("python", "console", "toml")


class Block(NamedTuple):
    """Code or commands of a page, ready to be run."""

    language: str
    text: str


def blocks(page: str) -> list[Block]:
    """What of a page is run, in its order."""
    found = []
    for match in BLOCK.finditer(page):
        note, text = match["note"] or "", match["text"] or ""
        if match["setup"]:
            found.append(Block("python", match["setup"]))
        elif match["language"] in LANGUAGES and not note.startswith("not run: "):
            for change in note.removeprefix("shorter: ").split("; ") if note else ():
                before, after = change.split(" => ")
                assert before in text, f"{before!r} is not in the block"
                text = text.replace(before, after)
            found.append(Block(match["language"], text))
    return found


def commands(text: str) -> list[tuple[list[str], str]]:
    """Every `$ natgrad ...` with the first line printed below it."""
    lines = [*text.splitlines(), ""]
    return [
        (shlex.split(line[2:], comments=True)[1:], below)
        for line, below in itertools.pairwise(lines)
        if line.startswith("$ natgrad")
    ]


def run_command(words: list[str], below: str) -> None:
    """Exit code 0; or, where the page shows an error, that error."""
    said = io.StringIO()
    with contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.StringIO()):
        try:
            main(words)
            code = 0
        except SystemExit as stopped:
            code = stopped.code or 0
    refused = below.startswith("natgrad: ")
    assert code == (2 if refused else 0), (words, said.getvalue())
    if refused:
        assert said.getvalue() == f"{below}\n"


def run_block(block: Block, page: str, names: dict[str, object]) -> None:
    """Python with the page's names so far; commands; a config is written to the file it names."""
    if block.language == "python":
        exec(compile(block.text, page, "exec"), names)
    elif block.language == "console":
        for command in commands(block.text):
            run_command(*command)
    elif name := re.match(r"# (\S+\.toml)\n", block.text):
        Path(name[1]).write_text(block.text, "utf-8")


RUN = [page for page in PAGES if blocks(page.read_text("utf-8"))]


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("page", RUN, ids=[page.name for page in RUN])
def test_a_page_runs_as_printed(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    with jax.numpy_dtype_promotion("standard"):
        for block in blocks(page.read_text("utf-8")):
            run_block(block, page.name, names)


@pytest.mark.parametrize("page", PAGES, ids=[page.name for page in PAGES])
def test_every_command_stands_where_it_is_run(page):
    outside = BLOCK.sub("", page.read_text("utf-8"))
    assert re.findall(r"^(?: {4,}(?:\$ )?|\$ )natgrad .*", outside, re.M) == []
    assert re.findall(r"^ {4,}(?:from|import) .*", outside, re.M) == []
    for match in BLOCK.finditer(page.read_text("utf-8")):
        if match["language"] == "":
            assert not re.search(r"^(\$ )?natgrad ", match["text"], re.M), "name the block console"


def trainings(page: str) -> list[list[str]]:
    """The trainings that a page names inside its text, one for every value of `a|b`; not those of a RUN."""
    outside = BLOCK.sub("", page)
    found = [re.sub(r"\|\s+", "|", text).split() for text in re.findall(r"`natgrad (train [^`]+)`", outside)]
    usual = [[word.split("|") for word in words] for words in found if "RUN" not in " ".join(words)]
    return [
        [word[0] if at != changed else value for at, word in enumerate(words)]
        for words in usual
        for changed in range(1, len(words))
        for value in words[changed]
    ]


def test_trainings_named_in_the_text_are_valid(capsys):
    """Their settings, that is: `--dry-run` reads no data and trains nothing."""
    named = [words for page in PAGES for words in trainings(page.read_text("utf-8"))]
    assert ["train", "--model", "rbm", "--data", "digits"] in named
    for words in {tuple(words) for words in named}:
        run_command(["train", "--dry-run", *(word for word in words[1:] if word != "--dry-run")], "")


def test_blocks_are_found():
    page = "<!-- setup\na = 1\n-->\n<!-- shorter: 3 => 1 -->\n```python\nb = a + 3\n```\n"
    page += "```console\n$ natgrad runs  # all\nnatgrad: no\n```\n"
    page += "<!-- not run: hours -->\n```console\n$ natgrad x\n```\n"
    found = blocks(page)
    assert [block.text for block in found[:2]] == ["a = 1\n", "b = a + 1\n"]
    assert [commands(block.text) for block in found[2:]] == [[(["runs"], "natgrad: no")]]
