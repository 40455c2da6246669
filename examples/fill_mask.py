r"""Ranks the words for each [MASK], with a model of run_pretraining.py.

    python examples/fill_mask.py --model_dir=pretrained \
        "The man went to the [MASK] ."
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

model = api.load(arguments.model_dir, task="fill_mask", top_k=5)
found = model.predict(arguments.texts)
for text, masks in zip(arguments.texts, found, strict=True):
    print(text)
    for words in masks:
        print("  ", "  ".join(f"{x.word} {x.probability:.3f}" for x in words))
