r"""Runs fast tests beside several versions; prints the table of the results.

    python benchmarks/matrix.py FOLDER [3.13 ...]

uv (pip install uv) finds or downloads the interpreters, and makes environments
of 2 GB in FOLDER, which a later call uses again. Versions of Python choose
rows. A row takes about two minutes of processor time.
"""

import argparse
import pathlib
import resource
import subprocess

import tomllib

ROOT = pathlib.Path(__file__).resolve().parent.parent
# Python, TensorFlow, the tensorflow-text that fits, Keras.
ROWS = (
    ("3.14", "2.22.0rc0", "none", "3.15.1"),
    ("3.13", "2.22.0rc0", "none", "3.15.1"),
    ("3.10", "2.22.0rc0", "none", "3.12.4"),
    ("3.11", "2.21.0", "2.21.1", "3.15.1"),
    ("3.12", "2.21.0", "2.21.1", "3.12.4"),
    ("3.13", "2.20.0", "2.20.1", "3.15.1"),
    ("3.10", "2.20.0", "2.20.1", "3.12.4"),
)
TESTS = (
    # Every command trains, predicts or converts in the first.
    *("without_tensorflow_text_test.py", "modeling/golden_test.py"),
    *("weights/stored_weights_test.py", "training/optimizers_test.py"),
)
OF_TEXT = ("data/tokenization",)


def make_environment(folder, python, tensorflow, text, keras) -> bool:
    """Installs versions, with what pyproject.toml needs besides."""
    made = subprocess.run(["uv", "venv", "-q", "--python", python, folder])
    if made.returncode:  # There is no such interpreter.
        return False
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    needed = {f"tensorflow=={tensorflow}", f"keras=={keras}"}
    needed |= {"pytest", "hypothesis", *project["dependencies"]}
    needed.update(project["optional-dependencies"]["onnx"])
    if text == "none":
        needed = {x for x in needed if not x.startswith("tensorflow-text")}
    else:
        needed.add(f"tensorflow-text=={text}")
    install = "uv", "pip", "install", "-q", "--python", folder / "bin/python"
    subprocess.run([*install, *needed], check=True)
    return True


def run_tests(folder: pathlib.Path, text: str) -> tuple[str, str]:
    """Returns the counts of passed and failed tests, and seconds of CPU."""
    names = TESTS if text == "none" else TESTS + OF_TEXT
    tests = [f"tests/{name}" for name in names]
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    with open(folder / "log.txt", "w") as log:
        command = [folder / "bin/python", "-m", "pytest", "-q", *tests]
        subprocess.run(command, cwd=ROOT, stdout=log, stderr=log)
    seconds = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before
    last = (folder / "log.txt").read_text().splitlines()[-1]
    return last.partition(" in ")[0], f"{seconds:.0f}"


def main() -> None:
    """Prints a line for each row."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("pythons", nargs="*", default=[x[0] for x in ROWS])
    options = parser.parse_args()
    print("| Python | TensorFlow | tensorflow-text | Keras | Tests | CPU, s |")
    print("|---|---|---|---|---|---|")
    for python, *versions in ROWS:
        if python not in options.pythons:
            continue
        results = "not run: this Python could not be installed", ""
        own = options.folder / "-".join([python, *versions])
        if own.exists() or make_environment(own, python, *versions):
            results = run_tests(own, versions[1])
        cells = " | ".join((python, *versions, *results))
        print(f"| {cells} |", flush=True)


if __name__ == "__main__":
    main()
