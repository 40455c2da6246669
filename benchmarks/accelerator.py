r"""Measures steps of pre-training on one accelerator, beside transformers.

    python benchmarks/accelerator.py --input_file=text.txt \
        --vocab_file=vocab.txt --peer_python=/path/to/python/with/torch

Runs run_pretraining.py for some hundred steps of each configuration, the most
important first, and starts none after --minutes. Prints for each the sequences
per second (the median of what the run logs after its first entry), the time of
a step and the utilization of the device: the operations of the matrix products,
padding included and recomputation not, relative to the dense peak at 16 bits.
The peer is transformers' BertForPreTraining under torch.compile with a batch of
the same shape. --output_dir gets a line of JSON as soon as one is measured.
"""

import argparse
import json
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import speed

# TFLOP/s of dense products in bfloat16, by the beginning of the name.
PEAKS = {
    "NVIDIA A100": 312.0,
    "NVIDIA H100 PCIe": 756.0,
    "NVIDIA H100": 989.0,
    "NVIDIA H200": 989.0,
    "NVIDIA L4": 121.0,
    "NVIDIA L40S": 362.0,
}


class Case(NamedTuple):
    """One configuration."""

    size: str
    batch: int
    length: int = 128
    precision: str = "bfloat16"
    accumulation: int = 1

    def __str__(self) -> str:
        """Returns the row's name."""
        name = f"{self.size} {self.batch} x {self.length}, {self.precision}"
        parts = f", {self.accumulation} parts" if self.accumulation > 1 else ""
        return name + parts


CASES = (
    Case("base", 256),
    Case("large", 128),
    Case("base", 64, 512),
    Case("large", 32, 512),
    Case("base", 1024, accumulation=4),
    Case("base", 256, precision="float16"),
    Case("base", 128, precision="float32"),
)
SMALL = (Case("tiny", 8, 32, "float32"), Case("tiny", 8, 32, accumulation=2))


def device_name() -> str:
    """Returns the name of the first GPU; "CPU" without one."""
    if shutil.which("nvidia-smi") is None:
        return "CPU"
    command = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
    shown = subprocess.run(command, capture_output=True, text=True)
    return shown.stdout.splitlines()[0] if not shown.returncode else "CPU"


def predictions(length: int) -> int:
    """Returns the masked positions of a sequence, as released: 20 of 128."""
    return {128: 20, 512: 80}.get(length, max(1, round(0.15 * length)))


def training_flops(case: Case, vocab_size: int) -> float:
    """Returns the floating-point operations of training on one sequence.

    They are six per token and weight of the encoder, those of its attention,
    and six per prediction and weight of the output layer.
    """
    layers, hidden, _ = speed.SIZES[case.size]
    layer = 12 * hidden**2 + 2 * case.length * hidden
    encoder = case.length * layers * layer
    head = predictions(case.length) * hidden * (hidden + vocab_size)
    return 6.0 * (encoder + head)


def write_inputs(options, folder: pathlib.Path, cases: Sequence[Case]) -> None:
    """Writes configurations and records of all lengths."""
    size = len(pathlib.Path(options.vocab_file).read_text().splitlines())
    for name in {case.size for case in cases}:
        layers, hidden, heads = speed.SIZES[name]
        config = {
            "vocab_size": size,
            "hidden_size": hidden,
            "num_hidden_layers": layers,
            "num_attention_heads": heads,
            "intermediate_size": 4 * hidden,
            "hidden_act": "gelu",
            "hidden_dropout_prob": 0.1,
            "attention_probs_dropout_prob": 0.1,
            "max_position_embeddings": 512,
            "type_vocab_size": 2,
            "initializer_range": 0.02,
        }
        (folder / f"{name}.json").write_text(json.dumps(config))
    for length in {case.length for case in cases}:
        speed.run(
            speed.ours(
                "create_pretraining_data.py",
                input_file=options.input_file,
                vocab_file=options.vocab_file,
                output_prefix=folder / str(length) / "x",
                dupe_factor=1,
                max_seq_length=length,
                max_predictions_per_seq=predictions(length),
            )
        )


def measure(options, folder: pathlib.Path, case: Case) -> dict[str, Any]:
    """Trains some hundred steps; returns what was measured."""
    output = folder / "trained"
    shutil.rmtree(output, ignore_errors=True)
    usage = speed.run(
        speed.ours(
            "run_pretraining.py",
            bert_config_file=folder / f"{case.size}.json",
            input_file=folder / str(case.length) / "x-*",
            output_dir=output,
            do_train=True,
            train_batch_size=case.batch,
            max_seq_length=case.length,
            max_predictions_per_seq=predictions(case.length),
            num_train_steps=options.steps,
            save_checkpoints_steps=options.steps,
            iterations_per_loop=max(options.steps // 8, 1),
            gradient_accumulation_steps=case.accumulation,
            precision=case.precision,
        )
    )
    lines = (output / "metrics.jsonl").read_text().splitlines()
    name = "train/examples_per_second"
    rates = [x[name] for x in map(json.loads, lines) if name in x]
    rate = statistics.median(rates[1:] or rates)
    return {"sequences_per_second": rate, "seconds": usage.seconds}


def measure_peer(options, case: Case) -> dict[str, Any]:
    """Runs transformers; its process prints the seconds of a step."""
    command = [options.peer_python, speed.PEER, "pretrain"]
    flags = {
        "size": case.size,
        "batch_size": case.batch,
        "max_seq_length": case.length,
        "precision": case.precision,
        "steps": options.steps,
    }
    done = subprocess.run(
        [*command, *(f"--{k}={v}" for k, v in flags.items())],
        stdout=subprocess.PIPE,
        text=True,
    )
    if done.returncode:
        sys.exit(f"peer.py ended with code {done.returncode}")
    values = json.loads(done.stdout.splitlines()[-1])
    return {"sequences_per_second": case.batch / values["seconds"], **values}


def main() -> None:
    """Measures all configurations and prints a line for each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--input_file", required=True)
    parser.add_argument("--vocab_file", required=True)
    parser.add_argument("--output_dir", default="accelerator")
    parser.add_argument("--peer_python")
    parser.add_argument("--minutes", type=float, default=15.0)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--peak_tflops", type=float)
    parser.add_argument("--small", action="store_true", help="for a CPU")
    options = parser.parse_args()
    device = device_name()
    peaks = [x for name, x in PEAKS.items() if device.startswith(name)]
    peak = options.peak_tflops or (peaks[0] if peaks else None)
    size = len(pathlib.Path(options.vocab_file).read_text().splitlines())
    cases = SMALL if options.small else CASES
    deadline = time.monotonic() + 60 * options.minutes
    output = pathlib.Path(options.output_dir)
    output.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="accelerator-") as name:
        folder = pathlib.Path(name)
        write_inputs(options, folder, cases)
        for case in cases:
            for side in ("ours", "transformers"):
                is_left_out = case.accumulation > 1 or not options.peer_python
                if side == "transformers" and is_left_out:
                    continue
                if time.monotonic() > deadline:
                    print(f"{case}, {side}: left out, no time")
                    continue
                if side == "ours":
                    values = measure(options, folder, case)
                else:
                    values = measure_peer(options, case)
                rate = values["sequences_per_second"]
                tflops = rate * training_flops(case, size) / 1e12
                used = f"{tflops / peak:.1%}" if peak else "unknown"
                values |= {"case": case, "side": side, "device": device}
                with open(output / "results.jsonl", "a") as file:
                    file.write(json.dumps(values) + "\n")
                print(
                    f"{device}, {case}, {side}: {rate:.0f} sequences/s, "
                    f"{1000 * case.batch / rate:.1f} ms per step, "
                    f"{tflops:.1f} TFLOP/s, utilization {used}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
