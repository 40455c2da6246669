r"""Labels texts, or pairs of texts, with a model of run_classifier.py.

    python examples/classification.py --model_dir=sst2 "A fine film." "Dull."

Two texts of a pair are separated by " ||| ".
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
inputs = [
    tuple(text.split(" ||| ", 1)) if " ||| " in text else text
    for text in arguments.texts
]
for text, found in zip(arguments.texts, model.predict(inputs), strict=True):
    print(f"{found.label} {found.score:.3f}  {text}")
