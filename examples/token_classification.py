r"""Finds entities in texts, with a model of run_ner.py.

    python examples/token_classification.py --model_dir=ner \
        "Jim Henson was born in Mississippi."
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
for text, entities in zip(arguments.texts, found, strict=True):
    print(text)
    for x in entities:
        print(f"    {x.type} {x.score:.3f}  {x.text} [{x.start}, {x.end})")
