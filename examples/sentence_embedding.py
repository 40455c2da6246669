r"""Compares texts by the cosine similarity of their vectors.

    python examples/sentence_embedding.py --model_dir=all-MiniLM-L6-v2 \
        "A man plays a guitar." "Someone plays an instrument." "It rains."
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

model = api.load(
    arguments.model_dir,
    task="sentence_embedding",
    pooling="mean",
    normalize=True,
)
vectors = model.predict(arguments.texts)  # [N, H]
for text, row in zip(arguments.texts, vectors @ vectors.T, strict=True):
    print(" ".join(f"{value:6.3f}" for value in row), "", text)
