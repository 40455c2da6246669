"""Stores the losses of the present kind of device in device_losses.json.

    python tests/testdata/make_device_losses.py

The ten steps are those of benchmarks/accelerator_cases.py, of a tiny model.
"""

import json
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parents[1]), str(HERE.parents[1] / "benchmarks")]

import accelerator_cases  # noqa: E402

PATH = HERE / "device_losses.json"


def losses(precision: str) -> list[float]:
    """Returns the losses of ten steps in a number format."""
    case = accelerator_cases.Case(
        name=precision, size="tiny", length=32, batch=8, precision=precision
    )
    return accelerator_cases.first_losses(case)["losses"]


def main() -> None:
    """Adds or replaces the entry of this device."""
    device = accelerator_cases.device()
    formats = ["float32", "bfloat16", "float16"]
    if device["is_gpu"]:
        formats.insert(1, "tf32")
    stored = json.loads(PATH.read_text()) if PATH.exists() else {}
    stored[device["device"]] = {name: losses(name) for name in formats}
    PATH.write_text(json.dumps(stored, indent=1) + "\n")


if __name__ == "__main__":
    main()
