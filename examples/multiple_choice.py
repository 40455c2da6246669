r"""Chooses the best ending, with a model of run_classifier.py.

    python examples/multiple_choice.py --model_dir=swag \
        "She opened the door and" "walked in." "ate the moon."
"""

import argparse
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from export import api

parser = argparse.ArgumentParser()
parser.add_argument("--model_dir", required=True)
parser.add_argument("beginning")
parser.add_argument("endings", nargs="+")
arguments = parser.parse_args()

model = api.load(arguments.model_dir)
(found,) = model.predict([(arguments.beginning, arguments.endings)])
for number, (ending, probability) in enumerate(
    zip(arguments.endings, found.probabilities, strict=True)
):
    mark = "*" if number == found.choice else " "
    print(f"{mark} {probability:.3f}  {arguments.beginning} {ending}")
