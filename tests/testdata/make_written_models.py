"""Makes written_models.json: what transformers reads in our directories.

Every kind of model is written as a model directory, its weights a function of
the seed; transformers' Auto classes load it and score a batch. Two steps, as
torch and TensorFlow need not live in one environment:

    PYTHONPATH=. python tests/testdata/make_written_models.py write /tmp/models
    pip install torch==2.13.0 transformers==5.23.0
    python tests/testdata/make_written_models.py score /tmp/models
"""

import json
import pathlib
import sys

HERE = pathlib.Path(__file__).parent
CONFIG = {
    "vocab_size": 60,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 24,
    "max_position_embeddings": 12,
    "type_vocab_size": 2,
    "initializer_range": 0.5,
}
VOCABULARY = """[PAD] [UNK] [CLS] [SEP] [MASK] the The fox un ##aff ##able
jump ##ed , ; ! . hello Hello HELLO world istanbul İ i ##stan ##bul İstan stra
##ße Élan élan elan 中 国 日 本 語 。 low ##er new ##est low lower 中国 日本語 $
+ = " ( ) running want run ##ning [ ] mask""".split()
LABELS = ["no", "yes", "maybe"]
# Our class, its options, transformers' Auto class, its class.
MODELS = {
    "pretraining": (
        "PretrainingModel",
        {},
        "AutoModelForPreTraining",
        "BertForPreTraining",
    ),
    "masked_lm": (
        "PretrainingModel",
        {"next_sentence": False},
        "AutoModelForMaskedLM",
        "BertForMaskedLM",
    ),
    "left_to_right": (
        "PretrainingModel",
        {"next_sentence": False, "attention": "left_to_right"},
        "AutoModelForCausalLM",
        "BertLMHeadModel",
    ),
    "classification": (
        "ClassificationModel",
        {"num_classes": 3},
        "AutoModelForSequenceClassification",
        "BertForSequenceClassification",
    ),
    "regression": (
        "ClassificationModel",
        {"num_classes": 1},
        "AutoModelForSequenceClassification",
        "BertForSequenceClassification",
    ),
    "multiple_choice": (
        "MultipleChoiceModel",
        {},
        "AutoModelForMultipleChoice",
        "BertForMultipleChoice",
    ),
    "question_answering": (
        "QuestionAnsweringModel",
        {},
        "AutoModelForQuestionAnswering",
        "BertForQuestionAnswering",
    ),
    "tagging": (
        "TaggingModel",
        {"num_classes": 3},
        "AutoModelForTokenClassification",
        "BertForTokenClassification",
    ),
}
ACTIVATIONS = ("gelu", "gelu_erf")
TEXTS = [
    "The fox, unaffable; jumped!",
    "Hello HELLO world",
    "İstanbul straße Élan élan",
    "中国日本語。low lower newest 中low",
    '$un+want="running" (unknownword)',
]
TOKENIZERS = {
    "uncased": {"do_lower_case": True},
    "cased": {"do_lower_case": False},
    "keeps_accents": {"do_lower_case": True, "strip_accents": False},
    "strips_only": {"do_lower_case": False, "strip_accents": True},
    "no_chinese": {"do_lower_case": True, "tokenize_chinese_chars": False},
}


def batch() -> dict:
    """Makes two padded rows (of two choices each) from nothing but numbers."""
    ids = [[(7 * i + 11 * j) % 53 + 5 for j in range(12)] for i in range(4)]
    mask = [[int(j < 12 - 2 * i) for j in range(12)] for i in range(4)]
    segments = [[int(j > 5) * mask[i][j] for j in range(12)] for i in range(4)]
    return {"input_ids": ids, "input_mask": mask, "segment_ids": segments}


def build(name: str, activation: str):
    """Makes one of our models."""
    from modeling import models
    from modeling.config import BertConfig

    model_class, options, _, _ = MODELS[name]
    config = BertConfig(**CONFIG, hidden_act=activation)
    return getattr(models, model_class)(config, seed=5, **options)


def write(root: pathlib.Path) -> None:
    """Writes every model and every tokenizer."""
    from data.tokenization import vocabulary, wordpiece
    from weights import model_directory

    words = vocabulary.Vocabulary.from_tokens(VOCABULARY)
    for name in MODELS:
        for activation in ACTIVATIONS:
            model = build(name, activation)
            labels = LABELS if MODELS[name][1].get("num_classes") == 3 else None
            path = root / f"{name}-{activation}"
            model_directory.save(
                model, str(path), wordpiece.Tokenizer(words), labels=labels
            )
    for name, settings in TOKENIZERS.items():
        tokenizer = wordpiece.Tokenizer(words, **settings)
        model_directory.save(model, str(root / name), tokenizer)


def score(root: pathlib.Path) -> None:
    """Lets transformers load all of them."""
    import torch
    import transformers

    ours = batch()
    names = ("input_ids", "attention_mask", "token_type_ids")
    inputs = dict(zip(names, map(torch.tensor, ours.values()), strict=True))
    golden = {"transformers": transformers.__version__, "outputs": {}}
    for name, (_, _, auto, expected) in MODELS.items():
        for activation in ACTIVATIONS:
            key = f"{name}-{activation}"
            model, info = getattr(transformers, auto).from_pretrained(
                root / key, output_loading_info=True
            )
            assert type(model).__name__ == expected, type(model)
            assert not any(info.values()), info
            if name == "multiple_choice":
                shaped = {k: v.view(2, 2, -1) for k, v in inputs.items()}
            else:
                shaped = inputs
            with torch.no_grad():
                out = model.eval()(**shaped).to_tuple()
            golden["outputs"][key] = {
                "labels": list(model.config.id2label.values()),
                # A few numbers of each output notice everything.
                "values": [
                    [round(v, 7) for v in tensor.flatten()[:12].tolist()]
                    + [round(tensor.double().square().mean().item(), 7)]
                    for tensor in out
                    if torch.is_tensor(tensor)
                ],
            }
    golden["tokens"] = {}
    for name in TOKENIZERS:
        tokenizer = transformers.AutoTokenizer.from_pretrained(root / name)
        golden["tokens"][name] = [tokenizer.tokenize(text) for text in TEXTS]
        pair = tokenizer(TEXTS[0], TEXTS[1])
        golden["tokens"][name].append(
            [pair["input_ids"], pair["token_type_ids"]]
        )
    target = HERE / "written_models.json"
    target.write_text(json.dumps(golden, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    {"write": write, "score": score}[sys.argv[1]](pathlib.Path(sys.argv[2]))
