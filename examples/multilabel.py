r"""Gives texts any number of labels, with a model of run_classifier.py.

python examples/multilabel.py --model_dir=topics "The team was sold."
"""

import argparse
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from export import api

parser = argparse.ArgumentParser()
parser.add_argument("--model_dir", required=True)
parser.add_argument("texts", nargs="+")
arguments = parser.parse_args()

model = api.load(arguments.model_dir)
found = model.predict(arguments.texts)
for text, row in zip(arguments.texts, found, strict=True):
    print(f"{', '.join(row.labels) or '-'}  {text}")
    for label, probability in row.probabilities.items():
        print(f"    {label} {probability:.3f}")
