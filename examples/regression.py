r"""Rates texts with a regression model of run_classifier.py, e.g. of STS-B.

    python examples/regression.py --model_dir=stsb \
        "A man plays a guitar. ||| Someone plays an instrument."
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
for text, value in zip(arguments.texts, model.predict(inputs), strict=True):
    print(f"{value:.3f}  {text}")
