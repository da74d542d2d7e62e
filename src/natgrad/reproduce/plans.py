"""What a reproduction trains for so many epochs and seeds, and which of its data are not here."""

import copy
from collections.abc import Sequence

from natgrad.data.catalogue import CATALOGUE
from natgrad.data.dataset import chosen_entry
from natgrad.data.files import locate
from natgrad.errors import InputError
from natgrad.reproduce.files import Reproduction
from natgrad.sweep.continued import EPOCHS
from natgrad.sweep.plan import SweepPlan, plan_of
from natgrad.sweep.values import by_dotted_name


def plan_for(found: Reproduction, epochs: int, seeds: Sequence[int]) -> SweepPlan:
    """The sweep of a reproduction: the first seed chooses among the settings of a variant, others confirm.

    By last rows, as in the papers.
    """
    tree = copy.deepcopy(found.tree)
    tree.setdefault("sweep", {}).update(seeds=list(seeds[:1]), confirm=list(seeds[1:]), objective="last")
    return plan_of(tree, {EPOCHS: epochs})


def with_data(plan: SweepPlan) -> tuple[SweepPlan, str]:
    """The plan without the variants whose data are not here, and a sentence about these."""
    lacks: dict[str, list[str]] = {}
    for each in plan.candidates:
        if files := missing_files(each.setting.get("data.name", ""), each.setting.get("data.binarize")):
            lacks[each.variant] = files
    if not lacks:
        return plan, ""
    files = sorted({file for own in lacks.values() for file in own})
    several = len(files) > 1
    what = f"the data file{'s' * several} {', '.join(files)}, which {'are' if several else 'is'} not here"
    how = f"put {'them under these names' if several else 'it under that name'} in the folder NATGRAD_DATA"
    said = f"{'; '.join(lacks)}: without {what}; {how}"
    kept = [each for each in plan.candidates if each.variant not in lacks]
    if not kept:
        raise InputError(f"expected {what}; {how}")
    return plan._replace(candidates=kept), f"not trained are {said}"


def missing_files(name: str, binarize: str | None = None) -> list[str]:
    """The files of a data set that are neither here nor to be downloaded."""
    if name not in CATALOGUE:
        return []
    files = chosen_entry(CATALOGUE[name], binarize).files
    return [file.path for file in files if locate(file)[0] == "missing"]


def data_sets(found: Reproduction) -> list[tuple[str, str | None]]:
    """The data sets that a reproduction reads and how they become binary, in the order of its variants."""
    tree = by_dotted_name({name: value for name, value in found.tree.items() if name != "sweep"})
    variants = found.tree.get("sweep", {}).get("variants", [{}])
    own = [tree | by_dotted_name({"name": "", **variant}) for variant in variants]
    return list(dict.fromkeys((each.get("data.name", "digits"), each.get("data.binarize")) for each in own))
