r"""Measures data creation, compared with google-research/bert's script.

    python benchmarks/pretraining_data_speed.py --reference=PATH_TO_CHECKOUT \
      --input_file=books.txt.gz --vocab_file=vocab.txt --megabytes=2

Both sides make instances from the same text: 128 tokens, 20 predictions,
dupe_factor 10. The times exclude start-up (imports, vocabulary, starting
workers) on both sides. Prints instances per second, their ratio, the peak
memory of a process and the scaling over workers. Without --reference only our
side runs. benchmarks/pretraining_data_statistics.py compares the instances.
"""

import argparse
import gzip
import importlib
import json
import os
import pathlib
import random
import resource
import subprocess
import sys
import tempfile
import time

import smoke

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
os.environ["CUDA_VISIBLE_DEVICES"] = "-1"
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")


def clocks() -> list[float]:
    """Returns the wall-clock and the processor seconds of this process."""
    return [time.perf_counter(), time.process_time()]


def since(begin: list[float]) -> list[float]:
    """Returns the wall-clock and processor seconds since `clocks`."""
    return [now - then for now, then in zip(clocks(), begin, strict=True)]


def warm_up(recipe, _):
    """Makes a worker import its modules and build its tables."""
    recipe.tokenizer.encode(["warm \u00fcp"])
    time.sleep(0.5)


def run_ours(text: str, vocab: str, folder: str, count: int) -> list[float]:
    """Writes shards with `count` workers; returns the result of `since`."""
    from data import workers
    from data.pretraining import generation
    from data.pretraining.recipe import Recipe, digest_files
    from data.pretraining.settings import Settings
    from data.tokenization import vocabulary

    shards = tuple(os.path.join(folder, f"{n}.tfrecord") for n in range(4))
    recipe = Recipe(
        settings=Settings(),
        input_files=(text,),
        input_digests=digest_files([text]),
        output_files=shards,
        work_dir=os.path.join(folder, "work"),
        vocabulary=vocabulary.Vocabulary.from_file(vocab),
    )
    with workers.Workers(count, recipe, "data.pretraining.generation") as pool:
        list(pool.map(warm_up, range(4 * count)))
        begin = clocks()
        generation.make(
            recipe,
            manifest_path=os.path.join(folder, "m.manifest.json"),
            pool=pool,
        )
        return since(begin)


def run_reference(
    text: str, vocab: str, folder: str, checkout: str
) -> list[float]:
    """Runs the functions of the reference; returns the result of `since`."""
    import tensorflow.compat.v1 as tf

    sys.modules["tensorflow"] = tf  # The only change that it needs.
    sys.path.insert(0, checkout)
    script = importlib.import_module("create_pretraining_data")
    tokenization = importlib.import_module("tokenization")
    tf.flags.FLAGS(["benchmark"], known_only=True)
    tokenizer = tokenization.FullTokenizer(vocab, do_lower_case=True)
    begin = clocks()
    made = script.create_training_instances(
        [text], tokenizer, 128, 10, 0.1, 0.15, 20, random.Random(12345)
    )
    script.write_instance_to_example_files(
        made, tokenizer, 128, 20, [os.path.join(folder, "0.tfrecord")]
    )
    return since(begin)


def count_instances(folder: str) -> int:
    """Counts the records of one side."""
    from data import records

    paths = sorted(map(str, pathlib.Path(folder).glob("*.tfrecord")))
    return sum(records.counts(paths))


def child(arguments) -> None:
    """Runs one side in this process and prints one line of JSON."""
    if arguments.side == "reference":
        seconds = run_reference(
            arguments.text,
            arguments.vocab_file,
            arguments.folder,
            arguments.reference,
        )
    else:
        seconds = run_ours(
            arguments.text,
            arguments.vocab_file,
            arguments.folder,
            arguments.workers,
        )
    own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    children = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    megabytes = max(own, children) / 1024
    result = {"seconds": seconds[0], "cpu": seconds[1], "megabytes": megabytes}
    print("RESULT", json.dumps(result))


def measure(arguments, text: str, side: str, folder: str, count: int) -> dict:
    """Runs one side in its own process."""
    os.makedirs(folder)
    command = [sys.executable, __file__, f"--side={side}", f"--text={text}"]
    command += [f"--vocab_file={arguments.vocab_file}", f"--folder={folder}"]
    command += [f"--workers={count}", f"--reference={arguments.reference}"]
    done = subprocess.run(command, capture_output=True, text=True)
    lines = [x for x in done.stdout.splitlines() if x.startswith("RESULT")]
    if not lines:
        raise SystemExit(done.stderr[-3000:])
    return json.loads(lines[0].split(maxsplit=1)[1])


def report(arguments) -> None:
    """Runs both sides and prints the table."""
    with tempfile.TemporaryDirectory() as scratch:
        text = os.path.join(scratch, "text.txt")
        opened = gzip.open if arguments.input_file.endswith(".gz") else open
        with opened(arguments.input_file, "rb") as source:
            data = source.read(int(arguments.megabytes * 1e6))
        pathlib.Path(text).write_bytes(data[: data.rindex(b"\n") + 1])
        sides = [("ours", n) for n in arguments.scaling]
        if arguments.reference:
            sides.insert(0, ("reference", 1))
        rates = {}
        print(f"{arguments.megabytes} MB of text, {os.cpu_count()} cores")
        for side, count in sides:
            folder = os.path.join(scratch, f"{side}-{count}")
            result = measure(arguments, text, side, folder, count)
            made = count_instances(folder)
            rate = made / result["seconds"]
            rates[side, count] = rate
            base = rates.get(("reference", 1), rates[sides[0]])
            print(
                f"{side:10} {count} worker(s): {rate:9.0f} instances/s, "
                f"{rate / base:6.1f} times, {result['megabytes']:6.0f} MB peak"
                # More reliable on a busy machine; workers are not included.
                + f", {made / result['cpu']:9.0f} per second of its core"
                * (count == 1)
            )


def main() -> None:
    """Runs the comparison, or one side of it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--reference", default="")
    parser.add_argument("--input_file")
    parser.add_argument("--vocab_file", required=True)
    parser.add_argument("--megabytes", type=float, default=2)
    parser.add_argument("--scaling", type=int, nargs="*", default=[1, 2])
    for hidden in ("side", "text", "folder"):
        parser.add_argument(f"--{hidden}", help=argparse.SUPPRESS)
    parser.add_argument("--workers", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    child(arguments) if arguments.side else report(arguments)


if __name__ == "__main__":
    with smoke.flags(
        {
            "input_file": "DATA/corpus.txt",
            "vocab_file": "DATA/vocab.txt",
            "megabytes": 0.01,
        }
    ):
        main()
