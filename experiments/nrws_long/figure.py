"""The figure of the README: test likelihood against seconds of training, every seed a line.

python -m experiments.nrws_long.figure      # headline.jsonl -> headline_seconds.png
"""

from pathlib import Path

from experiments import table

HERE = Path(__file__).parent
RECORD, PICTURE = HERE / "headline.toml", HERE / "headline_seconds.png"
LOWEST = -105.0  # where the axis begins: all come from below -500
COLORS = {"NRWS": "#c0392b", "RWS": "#2c6fbb", "RWS, Adam": "#7f8c8d"}


def main() -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 4.4), dpi=120, layout="constrained")
    axes = figure.subplots()
    for name, trials in table.best(table.results(RECORD)).items():
        for number, trial in enumerate(trials):
            rows = [row for row in trial["rows"] if row["test_ll"] > LOWEST]
            minutes = [row["cpu_seconds"] / 60 for row in rows]
            label = name if number == 0 else None
            axes.plot(minutes, [row["test_ll"] for row in rows], marker=".", color=COLORS[name], label=label)
    axes.set(xlabel="minutes of training, one core", ylabel="test log-likelihood (nats)")
    axes.grid(alpha=0.3)
    axes.legend()
    figure.savefig(PICTURE)


if __name__ == "__main__":
    main()
