"""The plan of the house: who may know a kind of model, what the import contract covers, which names recur."""

import ast
import collections
import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "natgrad"
SOURCES = sorted(PACKAGE.rglob("*.py"))
TABLE = PACKAGE / "models" / "registry.py"

KINDS = re.compile(
    r"helmholtz|\bmlp\b|convnet|autoencoder|\bvae\b|\w*generation|\w*recognition|encoder|\bchains?\b|\bdreams?\b",
    re.IGNORECASE,
)
OTHER_MEANINGS = ("families", "relax")  # Gibbs chains of a family, generations of a search


def code_of(path: Path) -> str:
    """A module without comments and docstrings."""
    tree = ast.parse(path.read_text("utf-8"))
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list) and body and isinstance(body[0], ast.Expr):
            value = body[0].value
            if isinstance(value, ast.Constant) and isinstance(value.value, str):
                value.value = ""
    return ast.unparse(tree)


def place(path: Path) -> str:
    return path.relative_to(PACKAGE).as_posix()


OUTSIDE = [
    path
    for path in SOURCES
    if path != TABLE and path.relative_to(PACKAGE).parts[0] not in ("models", *OTHER_MEANINGS)
]


@pytest.mark.parametrize("path", OUTSIDE, ids=place)
def test_no_module_outside_the_kinds_names_one(path):
    found = [word for word in KINDS.findall(re.sub(r"(itertools|optax)\.chain", "", code_of(path)))]
    assert found == []


def test_the_page_of_a_report_names_no_kind():
    for path in (PACKAGE / "report").glob("page.*"):
        if path.suffix != ".py":
            text = re.sub(r"//.*|/\*.*?\*/", "", path.read_text("utf-8"), flags=re.DOTALL)
            assert KINDS.findall(text) == []


def test_the_table_of_kinds_is_all_that_the_registry_knows():
    code = code_of(TABLE)
    start = code.index("FOLDERS = {")
    rest = code[:start] + code[code.index("}", start) :]
    assert KINDS.findall(rest.replace("DEFAULT = 'helmholtz'", "")) == []


def test_the_import_contract_covers_every_module():
    contract = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"]
    layers = {name.strip(" ()") for layer in contract["contracts"][0]["layers"] for name in layer.split("|")}
    for path in SOURCES:
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        if path.name == "__init__.py" and len(parts) <= 2 and parts[0] in ("__init__", "models"):
            continue  # the package's public names, and the folder of kinds: neither imports anything
        names = [".".join(("natgrad", *parts[:length])) for length in range(1, len(parts) + 1)]
        assert layers.intersection(names), place(path)


ODD = re.compile(  # words that a reader stumbles over, and spelling that is not American
    r"\b(goes on|anew|is no (?:folder|file|number|image|run)|laws?|you may write|passed over|whilst|thereof|"
    r"behaviour|colour|grey|labelled|centred?|artefacts?|analyse|(?:neighbour|favour)\w*|"
    r"(?:normal|initial|minim|binar|recogn|general|optim)is(?:e[ds]?|ing|ation)\b)",
    re.IGNORECASE,
)


def test_texts_and_pages_are_in_plain_american_english():
    """Messages, help and docstrings; former names of settings are spelled as they were."""
    texts = {
        place(path): " ".join(
            node.value
            for node in ast.walk(ast.parse(path.read_text("utf-8")))
            if isinstance(node, ast.Constant) and isinstance(node.value, str)
        )
        for path in SOURCES
        if path.name != "former.py"
    }
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
    texts |= {page.name: page.read_text("utf-8") for page in pages}
    assert {name: found for name, text in texts.items() if (found := ODD.findall(text))} == {}


def test_nobody_is_sent_to_an_index_that_does_not_have_natgrad():
    """`pip install natgrad` would fetch nothing, or something else: a checkout or a wheel is installed."""
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
    texts = {path.name: path.read_text("utf-8") for path in (*SOURCES, *pages)}
    assert [
        name for name, text in texts.items() if re.search(r"install natgrad(?!-)|natgrad\[\w", text)
    ] == []


def test_few_modules_at_the_root():
    assert len(list(PACKAGE.glob("*.py"))) <= 8


SAME_CONTRACT = {
    "what a kind's folder offers to the registry and the training loop": (
        *("SPEC", "KIND", "Shape", "fresh", "problem", "trained", "panels", "check"),
        *("algorithm", "METHODS", "SOLVERS"),
    ),
    "a section of settings that a kind extends under its own name": ("Data", "Evaluation", "Training"),
    "a command and the function of the library that it calls": ("train", "resume", "sweep", "minimize"),
    "a command of several kinds": ("evaluate", "sample", "show_fisher"),
    "the same quantity, exact or sampled": ("log_likelihood",),
    "read by a name or a path: a data set, a run": ("load",),
}
"""Public names that may recur, by the reason: the contract is the same in every module."""


def recurring() -> dict[str, list[str]]:
    """Public module-level names that are defined more than once."""
    found = collections.defaultdict(list)
    for path in SOURCES:
        for node in ast.parse(path.read_text("utf-8")).body:
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                names = [node.name]
            elif isinstance(node, ast.Assign):
                names = [target.id for target in node.targets if isinstance(target, ast.Name)]
            elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                names = [node.target.id]
            else:
                continue
            for name in names:
                if not name.startswith("_"):
                    found[name].append(place(path))
    return {name: places for name, places in found.items() if len(places) > 1}


def test_a_public_name_has_one_meaning():
    allowed = {name for names in SAME_CONTRACT.values() for name in names}
    assert len(allowed) <= 25
    assert {name: places for name, places in recurring().items() if name not in allowed} == {}
