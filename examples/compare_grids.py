"""Compares two models by the seeds of one grid each: is the second better?

    python examples/compare_grids.py few/before few/after

Both folders are --output_dir of a grid of one task, with the same seeds and
settings. Prints the mean and the deviation of both, and two p-values: of the
t-test on the differences of equal seeds, and of Welch's on both samples. They
tell whether another set of seeds would show the difference, on this training
set and with this pre-training.
"""

import json
import pathlib
import statistics
import sys

from scipy import stats


def main(*folders: str) -> None:
    """Prints the scores of both grids, and how they differ."""
    runs = [
        json.loads(pathlib.Path(x, "run.json").read_text())["runs"]
        for x in folders
    ]
    names = sorted(set.intersection(*({*x} for x in runs)))
    before, after = (
        [grid[name]["values"]["score"] for name in names] for grid in runs
    )
    for folder, scores in zip(folders, (before, after), strict=True):
        mean, deviation = statistics.fmean(scores), statistics.stdev(scores)
        print(f"{folder}: {mean:.4f} +- {deviation:.4f} ({len(names)} seeds)")
    gain = statistics.fmean(after) - statistics.fmean(before)
    paired = stats.ttest_rel(after, before).pvalue
    welch = stats.ttest_ind(after, before, equal_var=False).pvalue
    print(f"difference {gain:+.4f}, p {paired:.3g} paired, {welch:.3g} Welch")


if __name__ == "__main__":
    main(*sys.argv[1:])
