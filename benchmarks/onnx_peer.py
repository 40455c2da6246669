r"""Exports a model directory to ONNX and runs it; needs torch, not TensorFlow.

    pip install torch transformers onnx onnxruntime onnxscript
    python benchmarks/onnx_peer.py --model_dir=mrpc --onnx_dir=onnx/mrpc

writes model.onnx, and model_int8.onnx with the matrices of linear layers as
8-bit integers (dynamic quantization). Their inputs are input_ids,
attention_mask and token_type_ids, int64 [B, S] ([B, K, S] of multiple choice).

transformers loads our model directories as they are, so torch's exporter is all
that is needed. With --features, a file of onnx_scores.py, the logits of both
models are written to --logits.
"""

import argparse
import os
import time

import numpy as np
import onnxruntime
import torch
import transformers
from onnxruntime.quantization import QuantType, quantize_dynamic

INPUTS = ("input_ids", "attention_mask", "token_type_ids")
_OUTPUTS = {
    "QuestionAnswering": ("start_logits", "end_logits"),
    "Model": ("last_hidden_state",),
}


class Outputs(torch.nn.Module):
    """Returns the outputs of a model in order, without a dictionary."""

    def __init__(self, model: torch.nn.Module, names: tuple[str, ...]):
        """Takes the model and the names of its outputs."""
        super().__init__()
        self.model = model
        self.names = names

    def forward(self, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Maps INPUTS to the outputs."""
        outputs = self.model(**dict(zip(INPUTS, inputs, strict=True)))
        return tuple(outputs[name] for name in self.names)


def export(model_dir: str, onnx_dir: str) -> list[str]:
    """Writes model.onnx and model_int8.onnx; returns their paths."""
    config = transformers.AutoConfig.from_pretrained(model_dir)
    (architecture,) = config.architectures
    if architecture == "BertForPreTraining":
        architecture = "BertForMaskedLM"
    model = getattr(transformers, architecture).from_pretrained(
        model_dir, attn_implementation="eager"
    )
    names = _OUTPUTS.get(architecture.removeprefix("BertFor"), ("logits",))
    if architecture == "BertModel":
        names = _OUTPUTS["Model"]
    shape = (2, 3, 16) if "MultipleChoice" in architecture else (2, 16)
    example = (torch.ones(shape, dtype=torch.int64),) * 3
    axes = {i: f"axis{i}" for i in range(len(shape))}
    os.makedirs(onnx_dir, exist_ok=True)
    path = os.path.join(onnx_dir, "model.onnx")
    torch.onnx.export(
        Outputs(model.eval(), names),
        example,
        path,
        input_names=list(INPUTS),
        output_names=list(names),
        dynamic_axes={name: axes for name in INPUTS}
        | {name: {0: "axis0"} for name in names},
        opset_version=17,
        dynamo=False,
    )
    small = os.path.join(onnx_dir, "model_int8.onnx")
    quantize_dynamic(path, small, weight_type=QuantType.QInt8)
    return [path, small]


def predict(path: str, batches: list[dict[str, np.ndarray]]) -> tuple:
    """Returns the outputs of all batches by name, and the seconds."""
    session = onnxruntime.InferenceSession(path)
    names = [output.name for output in session.get_outputs()]
    started = time.perf_counter()
    found = [session.run(names, batch) for batch in batches]
    seconds = time.perf_counter() - started
    return names, found, seconds


def main() -> None:
    """Exports, and predicts if there are features."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model_dir", required=True)
    parser.add_argument("--onnx_dir", required=True)
    parser.add_argument("--features")
    parser.add_argument("--logits")
    arguments = parser.parse_args()
    paths = export(arguments.model_dir, arguments.onnx_dir)
    for path in paths:
        print(f"{path}: {os.path.getsize(path) / 1e6:.1f} MB")
    if not arguments.features:
        return
    with np.load(arguments.features) as arrays:
        count = len(arrays.files) // len(INPUTS)
        batches = [
            {name: arrays[f"{name}_{i}"] for name in INPUTS}
            for i in range(count)
        ]
    logits = {}
    for kind, path in zip(("float32", "int8"), paths, strict=True):
        names, found, seconds = predict(path, batches)
        logits[f"{kind}/seconds"] = np.float64(seconds)
        for i, values in enumerate(found):
            for name, value in zip(names, values, strict=True):
                logits[f"{kind}/{name}_{i}"] = value
    np.savez(arguments.logits, **logits)


if __name__ == "__main__":
    main()
