r"""Answers questions from a paragraph, with a model of run_squad.py.

    python examples/question_answering.py --model_dir=squad \
        "The house was built in 1923." "When was the house built?"
"""

import argparse
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from export import api

parser = argparse.ArgumentParser()
parser.add_argument("--model_dir", required=True)
parser.add_argument("paragraph")
parser.add_argument("questions", nargs="+")
arguments = parser.parse_args()

model = api.load(arguments.model_dir)
found = model.predict([(x, arguments.paragraph) for x in arguments.questions])
for question, answer in zip(arguments.questions, found, strict=True):
    print(f"{question}  {answer.answer or '(no answer)'}  {answer.score:.3f}")
