"""What `make attack` tried, as the table of docs/reliability.md.

make attack                  # writes benchmarks/results/attack.json, then runs
python -m benchmarks.attack
"""

import json
from pathlib import Path
from typing import Any

RECORD, PAGE = Path("benchmarks/results/attack.json"), Path("docs/reliability.md")
HEAD = "| part | tried | tests | failed | seconds |"


def table(record: dict[str, Any]) -> str:
    """A line for every file of tests, and one for all."""
    lines = [HEAD, "|---|---|---|---|---|"]
    for place, part in sorted(record["parts"].items()):
        tried = ", ".join(f"{number:,} {kind}" for kind, number in sorted(part["tried"].items()))
        lines.append(_line(f"`pytest {place} -m ''`", tried, part))
    whole = {
        key: sum(part[key] for part in record["parts"].values()) for key in ("tests", "failed", "seconds")
    }
    return "\n".join([*lines, _line(f"all, on {record['cores']} cores", "", whole)])


def _line(name: str, tried: str, part: dict[str, Any]) -> str:
    return f"| {name} | {tried} | {part['tests']} | {part['failed']} | {part['seconds']:,} |"


def main() -> None:
    """Replace the table of the page."""
    page = PAGE.read_text("utf-8")
    before, _, rest = page.partition(HEAD)
    _, gap, after = rest.partition("\n\n")
    PAGE.write_text(before + table(json.loads(RECORD.read_text("utf-8"))) + gap + after, "utf-8")


if __name__ == "__main__":
    main()
