"""Hostile settings of every kind of model: each resolves or is refused in one short sentence."""

import pytest

from hostile.attempts import sentence
from natgrad import config
from natgrad.cli.dotted import literal, values
from natgrad.config.names import all_settings, fields_of
from natgrad.errors import InputError

HUGE = 10**30
HOSTILE = [HUGE, -HUGE, 0, -1, True, 1e300, -1e300, 1e-300, float("nan"), float("inf"), "x" * 100_000, [], {}]
HOSTILE += [[[[[]]]], [HUGE], [[1, HUGE]], [True], None, "\0", "\n= 3", "🜏"]
READERS = [reader for reader, _ in all_settings()]
FIRST = list({kind: (kind, method) for kind, method in reversed(READERS)}.values())  # one of every kind
EVERY = [
    pytest.param(reader, marks=[] if reader in FIRST else pytest.mark.slow, id="-".join(reader))
    for reader in READERS
]


def refused(settings):
    """The sentence of a refusal, or None where the settings are good."""
    return sentence(lambda: config.resolve(settings))


@pytest.mark.parametrize("reader", EVERY)
def test_hostile_values_of_every_setting(reader, tried):
    kind, method = reader
    names = [name for name in fields_of(dict(all_settings())[reader]) if name not in ("model.kind", "method")]
    for name in names:
        answers = [refused({"model": kind, "method": method, name: value}) for value in HOSTILE]
        assert any(answers), name
    tried("settings", len(names) * len(HOSTILE))


@pytest.mark.parametrize("reader", EVERY)
def test_no_number_is_larger_than_computers_hold(reader):
    """Whatever takes a number refuses those of thirty digits and those beyond single precision."""
    kind, method = reader
    for name, field in fields_of(dict(all_settings())[reader]).items():
        if "int" not in str(field.annotation) and "float" not in str(field.annotation):
            continue
        for value in (10 * HUGE, 1e300):
            assert refused({"model": kind, "method": method, name: value}), (name, value)


@pytest.mark.parametrize("reader", FIRST, ids="-".join)
def test_true_is_not_a_number(reader):
    kind, method = reader
    fields = fields_of(dict(all_settings())[reader])
    numbers = [name for name, field in fields.items() if field.annotation in (int, float)]
    assert numbers
    for name in numbers:
        assert "expected something other than true or false, got true" in refused(
            {"model": kind, "method": method, name: True}
        )


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("[" * 5000, "expected a list of whole numbers"),
        ("9" * 5000, "expected a list of whole numbers"),
        ("true", "expected something other than true or false, got true"),
        ("1\nfoo=2", "expected a list of whole numbers"),
    ],
)
def test_texts_of_layers(text, sentence, tried):
    found = refused(values({"layers": text}, {}))
    assert sentence in found
    assert len(found) < 300
    tried("settings")


def test_a_text_is_one_value():
    assert literal("1\nfoo=2") == "1\nfoo=2"
    assert literal("[" * 5000) == "[" * 5000


def test_a_huge_number_in_a_file(tmp_path):
    (tmp_path / "big.toml").write_text("seed = 0x" + "f" * 400)
    with pytest.raises(InputError, match="seed: expected a number less than 4294967296") as caught:
        config.resolve({}, tmp_path / "big.toml")
    assert len(str(caught.value)) < 300
