r"""Predicts texts with a model in Python: one function shows each task.

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
" ||| ".
"""

import argparse

import numpy as np

import bert


def classification(model, texts):
    """Labels texts, or pairs of texts, with a model of run_classifier.py."""
    for text, found in zip(texts, model.predict(pairs(texts)), strict=True):
        print(f"{found.label} {found.score:.3f}  {text}")


def regression(model, texts):
    """Rates texts with a model of run_classifier.py, e.g. of STS-B."""
    for text, value in zip(texts, model.predict(pairs(texts)), strict=True):
        print(f"{value:.3f}  {text}")


def multilabel(model, texts):
    """Gives texts any number of labels, with a model of run_classifier.py."""
    for text, found in zip(texts, model.predict(pairs(texts)), strict=True):
        print(f"{', '.join(found.labels) or '-'}  {text}")
        for label, probability in found.probabilities.items():
            print(f"    {label} {probability:.3f}")


def multiple_choice(model, texts):
    """Chooses the best ending of the first text, with a model of SWAG."""
    beginning, *endings = texts
    (found,) = model.predict([(beginning, endings)])
    for number, (ending, probability) in enumerate(
        zip(endings, found.probabilities, strict=True)
    ):
        mark = "*" if number == found.choice else " "
        print(f"{mark} {probability:.3f}  {beginning} {ending}")


def question_answering(model, texts):
    """Answers questions from the first text, with a model of run_squad.py."""
    paragraph, *questions = texts
    found = model.predict([(question, paragraph) for question in questions])
    for question, answer in zip(questions, found, strict=True):
        text = answer.answer or "(no answer)"
        print(f"{question}  {text}  {answer.score:.3f}")


def token_classification(model, texts):
    """Finds entities in texts, with a model of run_ner.py."""
    for text, entities in zip(texts, model.predict(texts), strict=True):
        print(text)
        for x in entities:
            print(f"    {x.type} {x.score:.3f}  {x.text} [{x.start}, {x.end})")


def fill_mask(model, texts):
    """Ranks the words for each [MASK], with a model of run_pretraining.py."""
    for text, masks in zip(texts, model.predict(texts), strict=True):
        print(text)
        for words in masks:
            shown = [f"{x.word} {x.probability:.3f}" for x in words]
            print("  ", "  ".join(shown))


def sentence_embedding(model, texts):
    """Compares texts by the cosine similarity of their vectors."""
    vectors = model.predict(texts)  # [N, H]
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    for text, row in zip(texts, vectors @ vectors.T, strict=True):
        print(" ".join(f"{value:6.3f}" for value in row), "", text)


def pairs(texts):
    """Divides texts at " ||| " into pairs."""
    return [
        tuple(text.split(" ||| ", 1)) if " ||| " in text else text
        for text in texts
    ]


TASKS = (
    classification,
    regression,
    multilabel,
    multiple_choice,
    question_answering,
    token_classification,
    fill_mask,
    sentence_embedding,
)

if __name__ == "__main__":
    by_name = {show.__name__: show for show in TASKS}
    parser = argparse.ArgumentParser()
    parser.add_argument("--model_dir", required=True)
    parser.add_argument("--task", choices=list(by_name))
    parser.add_argument("texts", nargs="+")
    arguments = parser.parse_args()
    try:
        model = bert.load(arguments.model_dir, task=arguments.task)
        if model.task in ("multiple_choice", "question_answering"):
            if len(arguments.texts) < 2:
                parser.error("texts: this task needs two or more")
        by_name[model.task](model, arguments.texts)
    except bert.InputError as error:
        parser.exit(2, f"{parser.prog}: {error}\n")
