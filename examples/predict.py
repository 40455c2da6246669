r"""Predicts texts with a model of any task, and prints what Python returns.

    python examples/predict.py --model_dir=sst2 "A fine film." "Dull."
    python examples/predict.py --model_dir=stsb \
        "A man plays a guitar. ||| Someone plays an instrument."
    python examples/predict.py --model_dir=topics "The team was sold."
    python examples/predict.py --model_dir=swag \
        "She opened the door and" "walked in." "ate the moon."
    python examples/predict.py --model_dir=squad \
        "The house was built in 1923." "When was the house built?"
    python examples/predict.py --model_dir=ner \
        "Jim Henson was born in Mississippi."
    python examples/predict.py --model_dir=pretrained \
        "The man went to the [MASK] ."
    python examples/predict.py --model_dir=all-MiniLM-L6-v2 \
        "A man plays a guitar." "Someone plays an instrument." "It rains."

The task is that of the model's head. --task=fill_mask or
--task=sentence_embedding chooses another. Two texts of a pair are separated by
" ||| ". Of vectors, it prints the cosine similarities.
"""

import argparse

import numpy as np

import bert


def items_of(task, texts):
    """Returns what `predict` takes for a task."""
    if task == "multiple_choice":
        beginning, *endings = texts
        return [(beginning, endings)]
    if task == "question_answering":
        paragraph, *questions = texts
        return [(question, paragraph) for question in questions]
    return [tuple(x.split(" ||| ", 1)) if " ||| " in x else x for x in texts]


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--model_dir", required=True)
    parser.add_argument("--task")
    parser.add_argument("texts", nargs="+")
    arguments = parser.parse_args()
    try:
        model = bert.load(arguments.model_dir, task=arguments.task)
        if model.task in ("multiple_choice", "question_answering"):
            if len(arguments.texts) < 2:
                parser.error("texts: this task needs two or more")
        items = items_of(model.task, arguments.texts)
        results = model.predict(items)
        if model.task == "sentence_embedding":  # [N, H]
            vectors = results / np.linalg.norm(results, axis=1, keepdims=True)
            results = np.round(vectors @ vectors.T, 3)
        for item, result in zip(items, results, strict=True):
            print(item)
            for x in result if isinstance(result, list) else [result]:
                print("   ", x)
    except bert.InputError as error:
        parser.exit(2, f"{parser.prog}: {error}\n")
