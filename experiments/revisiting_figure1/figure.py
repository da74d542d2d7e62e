"""The error surface with four paths, and divergences around four points of one; from config.jsonl only."""

import json
import tomllib
from pathlib import Path

import numpy as np

from experiments.revisiting_figure1.run import POINTS, inputs

HERE = Path(__file__).parent
COLOURS = {"newton": "tab:blue", "natural": "0.35", "covariance": "tab:orange", "gradient": "tab:purple"}


def reconstruct(b, w, x: np.ndarray, sign: int) -> np.ndarray:
    """[..., row] for parameters of any shape."""
    b, w = np.asarray(b)[..., None], np.asarray(w)[..., None]
    return w / (1 + np.exp(-(w * x + b))) + sign * b


def error(b, w, x: np.ndarray, sign: int) -> np.ndarray:
    return ((x - reconstruct(b, w, x, sign)) ** 2).mean(axis=-1)


def divergence(at: np.ndarray, b, w, x: np.ndarray, sign: int) -> np.ndarray:
    """KL(p_theta, p_theta + delta) of unit Gaussians, mean over the inputs: exact."""
    return ((reconstruct(b, w, x, sign) - reconstruct(at[0], at[1], x, sign)) ** 2).mean(axis=-1) / 2


def draw(paths: dict, form: str, x: np.ndarray, sign: int) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(13, 7), dpi=110, layout="constrained")
    left, right = figure.subfigures(1, 2, width_ratios=[1.15, 1])
    surface(left.subplots(), paths, x, sign)
    for number, (axes, place) in enumerate(zip(right.subplots(2, 2).flat, POINTS, strict=True), 1):
        contours(axes, paths, place, (x, sign))
        axes.set_title(f"[{number}] natural gradient, start {place[0] + 1}, step {place[1]}", fontsize=9)
    figure.savefig(HERE / f"{'figure' if form == 'printed' else form}.png")


def surface(axes, paths: dict, x: np.ndarray, sign: int) -> None:
    routes = {place: found for place, found in paths.items() if isinstance(place, tuple)}
    every = np.concatenate([found for (name, _), found in routes.items() if name != "newton"])
    low, high = every.min(axis=0) - 1, every.max(axis=0) + 1
    b, w = np.meshgrid(*(np.linspace(low[i], high[i], 160) for i in (0, 1)))
    axes.contour(b, w, np.log(error(b, w, x, sign)), 30, cmap="Greens_r", linewidths=0.6)
    for (name, start), found in routes.items():
        axes.plot(*found.T, ".-", color=COLOURS[name], ms=3, lw=1, label=name if start == 0 else None)
    axes.set(xlim=(low[0], high[0]), ylim=(low[1], high[1]), xlabel="b", ylabel="w")
    axes.set_title("log of the error, and the first 100 steps from two starts", fontsize=9)
    axes.legend(fontsize=8)


def contours(axes, paths: dict, place: tuple[int, int], data: tuple[np.ndarray, int]) -> None:
    """The divergence around a point of the natural path, and the step each method would take from there."""
    start, step = place
    at, steps = paths["natural", start][step], proposals(paths, place)
    reach = 1.3 * max(np.abs(steps[name]).max() for name in ("natural", "gradient", "covariance"))
    b, w = np.meshgrid(*[np.linspace(-reach, reach, 80)] * 2)
    axes.contour(
        b, w, np.sqrt(divergence(at, at[0] + b, at[1] + w, *data)), 15, cmap="Reds_r", linewidths=0.6
    )
    for name, move in steps.items():
        axes.annotate(
            "", move, (0, 0), arrowprops={"arrowstyle": "->", "color": COLOURS[name]}, annotation_clip=True
        )
    axes.set(xlim=(-reach, reach), ylim=(-reach, reach), xlabel="change of b", ylabel="change of w")


def proposals(paths: dict, place: tuple[int, int]) -> dict[str, np.ndarray]:
    return {name: paths[f"{name} from {place[0]},{place[1]}"] for name in COLOURS}


def turned(one: np.ndarray, other: np.ndarray) -> float:
    """The angle between two steps, in degrees."""
    cosine = one @ other / (np.linalg.norm(one) * np.linalg.norm(other))
    return float(np.degrees(np.arccos(np.clip(cosine, -1, 1))))


def table(rows: list[dict], forms: dict, x: np.ndarray) -> str:
    lines = ["| form | method | start (b, w) | after 100 steps (b, w) | error |", "|---|---|---|---|---|"]
    for row in rows:
        if "path" not in row:
            continue
        found = np.array(row["path"])
        first, last = (", ".join(f"{v:.2f}" for v in found[i]) for i in (0, -1))
        value = error(*found[-1], x, forms[row["form"]]["sign"])
        lines.append(f"| {row['form']} | {row['method']} | {first} | {last} | {value:.4f} |")
    lines += [
        "",
        "Steps at the four points of the natural path (length; angle to the gradient's in degrees):",
        "",
    ]
    lines += ["| form | point | " + " | ".join(COLOURS) + " |", "|---|---|" + "---|" * len(COLOURS)]
    for row in rows:
        if "steps" in row:
            moves = {name: np.array(move) for name, move in row["steps"].items()}
            cells = [f"{np.linalg.norm(m):.3f}; {turned(m, moves['gradient']):.0f}" for m in moves.values()]
            lines.append(f"| {row['form']} | [{row['point']}] | " + " | ".join(cells) + " |")
    lines += [
        "",
        "Grid points where the natural step is shorter than the gradient's and Newton's longer:",
        "",
    ]
    lines += ["| form | scale of the inputs | points |", "|---|---|---|"]
    lines += [f"| {row['form']} | {row['scale']} | {row['shorter']} |" for row in rows if "shorter" in row]
    return "\n".join(lines) + "\n"


def main() -> None:
    plan = tomllib.loads((HERE / "config.toml").read_text())
    rows = [json.loads(line) for line in (HERE / "config.jsonl").read_text().splitlines()]
    x = inputs(plan)[:, 0]
    for form, given in plan["form"].items():
        mine = [row for row in rows if row["form"] == form]
        paths = {(row["method"], row["start"]): np.array(row["path"]) for row in mine if "path" in row}
        for row in mine:
            for name, move in row.get("steps", {}).items():
                paths[f"{name} from {row['at'][0]},{row['at'][1]}"] = np.array(move)
        draw(paths, form, x, given["sign"])
    (HERE / "table.md").write_text(table(rows, plan["form"], x))
    print((HERE / "table.md").read_text())


if __name__ == "__main__":
    main()
