"""The house rules that a tool can hold: citations, sizes, light imports, documented names, plain files."""

import ast
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import natgrad
from natgrad.models.helmholtz import methods as registry
from natgrad.models.helmholtz.spec import SPEC as MACHINES
from natgrad.models.network import methods as network_methods
from natgrad.models.network.spec import SPEC as NETWORKS
from natgrad.models.rbm import methods as boltzmann_methods
from natgrad.models.rbm.spec import SPEC as BOLTZMANN
from natgrad.models.vae import methods as variational_methods
from natgrad.models.vae.spec import SPEC as VARIATIONAL

ROOT = Path(__file__).parents[1]
SOURCES = sorted((ROOT / "src").rglob("*.py"))
FILE_LINES, FUNCTION_LINES, PARAMETERS = 300, 70, 9

TAG = re.compile(r"\[([^\[\]]+)\]")
PLACE = re.compile(r"\b(eq|sec)\.")
REGISTRY = re.compile(r"pypi\.org|pythonhosted\.org|npmjs\.(org|com)|anaconda\.org|index[-_]url|/simpl[e]/")

per_file = pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.relative_to(ROOT).as_posix())


def keys() -> set[str]:
    return set(re.findall(r"^@\w+\{(\w+),", (ROOT / "docs/papers.bib").read_text("utf-8"), re.MULTILINE))


def unresolved(text: str, known: set[str]) -> list[str]:
    """Citation tags whose key is in no bibliography; a bare `[eq. 9]` means the one paper of its module."""
    tags = [tag.split() for tag in TAG.findall(text) if tag.strip()]
    cited = {words[0] for words in tags} & known
    wrong = []
    for words in tags:
        bare = bool(PLACE.match(words[0]))
        if PLACE.search(" ".join(words)) and (len(cited) != 1 if bare else words[0] not in known):
            wrong.append(" ".join(words))
    return wrong


def functions(tree: ast.AST) -> list[ast.FunctionDef]:
    return [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("[nrws eq. 8] and [rws], an array [unit, row, sample]", []),
        ("[nrwz eq. 8]", ["nrwz eq. 8"]),
        ("[nobody sec. 3]", ["nobody sec. 3"]),
        ("[nrws eq. 16,\n    21] then [eq. 9]", []),
        ("[eq. 9]", ["eq. 9"]),
        ("[rws], [nrws], [eq. 9]", ["eq. 9"]),
    ],
)
def test_tags_are_told_from_other_brackets(text: str, wrong: list[str]) -> None:
    assert unresolved(text, {"nrws", "rws"}) == wrong


@per_file
def test_citations_resolve(path: Path) -> None:
    assert unresolved(path.read_text("utf-8"), keys()) == []


def test_the_bibliography_names_each_paper_once() -> None:
    entries = re.findall(r"^@\w+\{([^,]*),", (ROOT / "docs/papers.bib").read_text("utf-8"), re.MULTILINE)
    assert sorted(keys()) == sorted(entries)


@per_file
def test_sizes_keep_to_the_budget(path: Path) -> None:
    text = path.read_text("utf-8")
    assert len(text.splitlines()) <= FILE_LINES
    for function in functions(ast.parse(text)):
        lines = (function.end_lineno or 0) - function.lineno + 1
        given = function.args
        count = len(given.posonlyargs) + len(given.args) + len(given.kwonlyargs)
        assert lines <= FUNCTION_LINES, f"{function.name} has {lines} lines"
        assert count <= PARAMETERS, f"{function.name} has {count} parameters"


def test_importing_the_package_and_the_command_line_imports_no_jax() -> None:
    show = "print([name for name in sys.modules if name.split('.')[0] == 'jax'])"
    code = f"import sys, natgrad, natgrad.cli.main; {show}"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


@pytest.mark.parametrize("name", natgrad.__all__)
def test_public_names_resolve_and_are_documented(name: str) -> None:
    assert getattr(natgrad, name).__doc__


@pytest.mark.few(1)
@pytest.mark.parametrize("first", ["natgrad.load", "import natgrad.models.helmholtz.measure"])
def test_public_names_are_callable_whatever_was_imported_before(first: str) -> None:
    code = (
        f"import natgrad; {first}; print([n for n in natgrad.__all__ if not callable(getattr(natgrad, n))])"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


def test_specs_and_methods_know_the_same_names() -> None:
    known_names = (
        (MACHINES, registry.METHODS),
        (NETWORKS, network_methods.DIRECTIONS),
        (BOLTZMANN, boltzmann_methods.BOLTZMANN_DIRECTIONS),
        (VARIATIONAL, variational_methods.METHODS),
    )
    for spec, known in known_names:
        assert set(spec.methods) == {method for _, method in spec.settings} == set(known)


def test_contributing_is_short_and_the_readme_has_the_two_commands() -> None:
    assert len((ROOT / "CONTRIBUTING.md").read_text("utf-8").splitlines()) < 60
    readme = (ROOT / "README.md").read_text("utf-8")
    assert 0 < readme.index("make demo") < readme.index("make test") < readme.index("\n## ")


def test_constraints_are_plain_pins() -> None:
    lines = (ROOT / "constraints.txt").read_text("utf-8").splitlines()
    assert [line for line in lines if not re.fullmatch(r"[\w.-]+==[\w.]+", line)] == []


def test_no_file_names_a_package_registry() -> None:
    listing = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        found = subprocess.run(listing, cwd=ROOT, capture_output=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("not a git checkout: there is no list of files to look through")
    paths = [ROOT / os.fsdecode(name) for name in found.stdout.split(b"\0") if name]
    naming = [path for path in paths if path.is_file() and REGISTRY.search(path.read_text("utf-8", "ignore"))]
    assert naming == []


@pytest.mark.slow
def test_a_training_is_followed_through_few_files_and_traced_once():
    """Before each kind of model had its folder: 57 files, 1,000 changes of file, 4 traces."""
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.walk", "--json"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    found = json.loads(done.stdout)
    assert found["files"] < 57
    assert found["changes"] < 1000
    assert found["objective_traced"] == 1
