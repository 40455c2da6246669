"""Prints what conlleval prints of a file: the last two columns are compared.

python benchmarks/tagging_score.py predictions_dev.txt
"""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

from tasks import entities


def main(path: str) -> None:
    """Scores one file."""
    true: list[list[str]] = [[]]
    found: list[list[str]] = [[]]
    for line in pathlib.Path(path).read_text(encoding="utf-8").split("\n"):
        cells = line.split()
        if cells:
            true[-1].append(cells[-2])
            found[-1].append(cells[-1])
        else:
            true.append([])
            found.append([])
    print(entities.score(true, found).text(), end="")


if __name__ == "__main__":
    main(sys.argv[1])
