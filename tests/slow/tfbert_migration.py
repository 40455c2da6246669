"""Compares the code of docs/migrating.md with TFBert classes and pipelines.

    python tests/slow/tfbert_migration.py OLD_PYTHON

OLD_PYTHON has transformers 4.46.3, tensorflow and tensorflow-text 2.18 and
tf-keras 2.18. It makes a tiny random model for each program below and runs it.
This Python then runs the page's code on the same models. The script prints the
largest difference of each row, and fails if it is above 1e-5.
"""

import json
import pathlib
import subprocess
import sys
import tempfile

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[2]
WORDS = (
    "[PAD] [UNK] [CLS] [SEP] [MASK] . ? a fine film it is one text another she "
    "opened the door moon mary lives in paris who dull sat cat dog"
).split()
# The name on the page -> the class of the model, and a program. The value of
# the last line is compared.
PROGRAMS = {
    "TFBertModel": """TFBertModel
        outputs = model(tokenizer("A film.", return_tensors="tf"))
        outputs.last_hidden_state, outputs.pooler_output""",
    "TFBertForPreTraining": """TFBertForPreTraining
        inputs = tokenizer("A film.", "It is fine.", return_tensors="tf")
        outputs = model(inputs)
        outputs.prediction_logits, outputs.seq_relationship_logits""",
    "TFBertForMaskedLM": """TFBertForMaskedLM
        model(tokenizer("A fine film.", return_tensors="tf")).logits""",
    "TFBertLMHeadModel": """TFBertLMHeadModel
        model(tokenizer("A fine film.", return_tensors="tf")).logits""",
    "TFBertForNextSentencePrediction": """TFBertForPreTraining
        name = "TFBertForNextSentencePrediction"
        model = getattr(transformers, name).from_pretrained(path)
        inputs = tokenizer("A film.", "It is fine.", return_tensors="tf")
        model(inputs).logits""",
    "TFBertForSequenceClassification": """TFBertForSequenceClassification
        texts = ["A film.", ("One text.", "Another.")]
        model(tokenizer(texts, padding=True, return_tensors="tf")).logits""",
    "TFBertForMultipleChoice": """TFBertForMultipleChoice
        texts = ["She opened"] * 2, ["the door.", "the moon."]
        inputs = tokenizer(*texts, padding=True, return_tensors="tf")
        model({name: x[None] for name, x in inputs.items()}).logits""",
    "TFBertForTokenClassification": """TFBertForTokenClassification
        model(tokenizer("Mary lives in Paris.", return_tensors="tf")).logits""",
    "TFBertForQuestionAnswering": """TFBertForQuestionAnswering
        inputs = tokenizer("Who lives?", "Mary lives.", return_tensors="tf")
        model(inputs).start_logits, model(inputs).end_logits""",
    "BertTokenizer": """TFBertModel
        tokenizer(["A fine film."]).input_ids""",
    "TFBertTokenizer": """TFBertModel
        tokenizer = transformers.TFBertTokenizer.from_pretrained(path)
        tokenizer(["A fine film."])["input_ids"]""",
    'pipeline("text-classification")': """TFBertForSequenceClassification
        run = pipeline("text-classification", path, framework="tf")
        found = run(["A fine film.", "Dull."])
        found[0]["label"], found[0]["score"]""",
    'pipeline("token-classification")': """TFBertForTokenClassification
        run = pipeline("ner", path, framework="tf")
        text = "Mary lives in Paris."
        found = run(text, aggregation_strategy="first")
        spans = [(x["entity_group"], x["start"], x["end"]) for x in found]
        [(name, text[a:b], a, b) for name, a, b in spans]""",
    'pipeline("question-answering")': """TFBertForQuestionAnswering
        run = pipeline("question-answering", path, framework="tf")
        found = run("Who lives in Paris?", "Mary lives in Paris.")
        found["answer"], found["start"], found["end"]""",
    'pipeline("fill-mask")': """TFBertForMaskedLM
        run = pipeline("fill-mask", path, framework="tf")
        found = run("The [MASK] sat.", top_k=3)
        [(x["token_str"], x["score"]) for x in found]""",
    'pipeline("feature-extraction")': """TFBertModel
        pipeline("feature-extraction", path, framework="tf")("A film.")""",
}
LABELS = {
    "TFBertForSequenceClassification": ["bad", "good"],
    "TFBertForTokenClassification": ["O", "B-PER", "I-PER", "B-LOC"],
}


def value(code, names):
    """Runs lines of code; returns the value of the last, or its `inputs`."""
    *lines, last = code
    exec("\n".join(lines), names)
    if " = " not in last:
        return eval(last, names)
    exec(last, names)
    return names["inputs"]["input_ids"]


def make_model(name, path):
    """Saves a tiny model of a class, with large random weights."""
    import transformers

    path.mkdir()
    (path / "vocab.txt").write_text("\n".join(WORDS))
    labels = dict(enumerate(LABELS.get(name, ["LABEL_0", "LABEL_1"])))
    config = transformers.BertConfig(
        vocab_size=len(WORDS),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        initializer_range=0.2,
        is_decoder="LMHead" in name,
        id2label=labels,
        label2id={label: i for i, label in labels.items()},
    )
    model = getattr(transformers, name)(config)
    tokenizer = transformers.BertTokenizer(path / "vocab.txt")
    inputs = tokenizer("a", return_tensors="tf")
    if "Choice" in name:
        inputs = {key: tensor[None] for key, tensor in inputs.items()}
    model(dict(inputs))
    for saved in model, tokenizer:
        saved.save_pretrained(path)


def run_old(folder):
    """Makes the models and runs the programs, with transformers 4.46."""
    import transformers

    found = {}
    for number, (row, text) in enumerate(PROGRAMS.items()):
        name, *code = map(str.strip, text.splitlines())
        path = folder / str(number)
        transformers.set_seed(number)
        make_model(name, path)
        names = {
            **{"path": str(path), "pipeline": transformers.pipeline},
            "transformers": transformers,
            "tokenizer": transformers.BertTokenizer.from_pretrained(path),
            "model": getattr(transformers, name).from_pretrained(path),
        }
        found[row] = value(code, names)
    (folder / "old.json").write_text(
        json.dumps(found, default=lambda x: np.array(x).tolist())
    )


def difference(old, new):
    """Returns the largest difference of two structures of numbers and texts."""
    if isinstance(old, str) or isinstance(new, str):
        return 0 if old == new else np.inf
    if isinstance(new, list | tuple) and len(old) == len(new):
        return max(map(difference, old, new))
    old, new = np.array(old), np.array(new)
    return np.abs(old - new).max() if old.shape == new.shape else np.inf


def main(python):
    """Runs both sides; returns whether they are equal."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        subprocess.run([python, __file__, "--old", folder], check=True)
        sys.path.insert(0, str(ROOT))
        import bert
        from tests.serving import migrating_test

        old, largest = json.loads((folder / "old.json").read_text()), 0
        for number, row in enumerate(PROGRAMS):
            lines = next(
                code
                for names, code in migrating_test.ROWS.items()
                if f"`{row}`" in names
            )
            # These options are for models that were not trained.
            for option in (
                *(', labels=["bad", "good"]', ', labels=["O", "B-PER"]'),
                ", new_head=True",
            ):
                lines = [line.replace(option, "") for line in lines]
            names = {"bert": bert, "path": folder / str(number)}
            try:
                found = difference(old[row], value(lines, names))
            except bert.InputError as error:
                print(error)
                found = np.inf
            largest = max(largest, found)
            print(f"{row:36}{found:.1e}", flush=True)
    return largest <= 1e-5


if __name__ == "__main__":
    if sys.argv[1] == "--old":
        run_old(pathlib.Path(sys.argv[2]))
    else:
        sys.exit(not main(sys.argv[1]))
