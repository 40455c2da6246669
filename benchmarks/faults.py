r"""Makes single operations on files fail, in the commands that write files.

    python benchmarks/faults.py
    python benchmarks/faults.py --sample=60 --seed=1 --state=faults.json

A trial runs a command in which one operation fails: the k-th of all below the
output directory that open, write, flush, rename, link, make or remove a file
or a folder. ENOSPC (no space left) is tried for every k; EIO, EDQUOT and
"lasting", a disk that stays full from the k-th operation on, for every tenth.
A trial is good if the command ended with exit code 2 and one line that names
the file, under its final name, or its folder, and the cause; or if it ended
with exit code 0 and the files of an undisturbed run. The same command without
a fault must then end with these files; it also removes what a command with
exit code 0 could not remove. On a disk that stays full several files fail, of
several threads: the line may name any of them.

The faults come from faults.c, which is compiled and preloaded into this process
(Linux, cc). Trials are forks of this process, which has imported TensorFlow,
and run in an order that --seed determines. --state names a JSON file of counts:
the next call with it continues. Prints tables of counts; the exit code is 1 if
a trial is not good.
"""

import argparse
import collections
import contextlib
import ctypes
import dataclasses
import errno
import hashlib
import json
import os
import pathlib
import random
import re
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable

sys.path.insert(0, os.path.join(os.path.dirname(__file__), os.pardir))

import smoke

HERE = pathlib.Path(__file__).resolve().parent
LIBRARY = "FAULTS_LIBRARY"  # Environment: the path of the compiled library.
LASTING = "lasting"
ERRORS = ("ENOSPC", "EIO", "EDQUOT", LASTING)
RARE = 10  # Errors other than the first are tried for every tenth operation.
SECONDS = 300  # After which a command is said to hang.
# Files with times, of which only the presence is compared.
WITH_TIMES = (
    ".training.lock",
    "card.json",
    "fingerprint.pb",
    "README.md",
    "report.html",
)
GOOD = ("one line", "harmless", "not reached")


def preload(scratch: pathlib.Path) -> None:
    """Compiles the library and starts this process again with it."""
    library = scratch / "faults.so"
    command = ["cc", "-shared", "-fPIC", "-O1", "-o", str(library)]
    subprocess.run([*command, str(HERE / "faults.c"), "-ldl"], check=True)
    environment = os.environ | {"LD_PRELOAD": str(library)}
    environment[LIBRARY] = str(library)
    os.execve(sys.executable, [sys.executable, *sys.argv], environment)


@dataclasses.dataclass(frozen=True)
class Fault:
    """What the library does: `number` 0 only counts."""

    number: int = 0
    error: str = "ENOSPC"


@dataclasses.dataclass(frozen=True)
class Scenario:
    """A command with its flags.

    Attributes:
      module: of the command.
      config: the name of its config class.
      flags: DATA and OUT stand for the directories.
      before: copied to the output directory before the command, if not empty.
      refused: the file below the output directory that a second command refuses
        to replace, if not empty. It is removed before that command.
    """

    module: str
    config: str
    flags: tuple[str, ...]
    before: str = ""
    refused: str = ""


PRETRAINING_SIZES = ("--max_seq_length=32", "--max_predictions_per_seq=5")
CLASSIFIER = (
    "--task_name=SST-2",
    "--data_dir=DATA/glue/SST-2",
    "--output_dir=OUT",
    "--max_seq_length=16",
)
SCENARIOS = {
    "create_pretraining_data": Scenario(
        "create_pretraining_data",
        "PretrainingDataConfig",
        (
            "--input_file=DATA/corpus.txt",
            "--vocab_file=DATA/vocab.txt",
            "--output_prefix=OUT/x",
            "--num_shards=2",
            "--dupe_factor=2",
            "--num_workers=1",
            *PRETRAINING_SIZES,
        ),
    ),
    "run_pretraining": Scenario(
        "run_pretraining",
        "PretrainingConfig",
        (
            "--input_file=DATA/records.tfrecord",
            "--eval_file=DATA/records.tfrecord",
            "--bert_config_file=DATA/bert_config.json",
            "--output_dir=OUT",
            "--do_train",
            "--do_eval",
            "--num_train_steps=5",
            "--train_batch_size=4",
            "--eval_batch_size=4",
            "--max_eval_steps=1",
            "--eval_every_steps=2",
            "--save_checkpoints_steps=2",
            "--keep_checkpoint_max=1",
            *PRETRAINING_SIZES,
        ),
    ),
    "run_classifier, training": Scenario(
        "run_classifier",
        "ClassifierConfig",
        (
            *CLASSIFIER,
            "--init_checkpoint=DATA/model",
            "--do_train",
            "--do_eval",
            "--num_train_epochs=1",
            "--train_batch_size=8",
            "--save_checkpoints_steps=2",
        ),
    ),
    "run_classifier, prediction": Scenario(
        "run_classifier",
        "ClassifierConfig",
        (*CLASSIFIER, "--do_predict"),
        before="DATA/classifier",
    ),
    "export_model": Scenario(
        "export_model",
        "ExportConfig",
        ("--model_dir=DATA/classifier", "--output_dir=OUT"),
    ),
    "export_model over another": Scenario(
        "export_model",
        "ExportConfig",
        ("--model_dir=DATA/classifier", "--output_dir=OUT"),
        before="DATA/export",
    ),
    "convert_checkpoint": Scenario(
        "convert_checkpoint",
        "ConversionConfig",
        ("--input=DATA/classifier", "--output=OUT"),
        refused="model.safetensors",
    ),
    "convert_checkpoint to tf1": Scenario(
        "convert_checkpoint",
        "ConversionConfig",
        ("--input=DATA/classifier", "--output=OUT", "--output_format=tf1"),
        refused="bert_model.ckpt.index",
    ),
}


class Runner:
    """Runs scenarios in forks of this process, always in the same directory."""

    def __init__(self, scratch: pathlib.Path):
        """Makes no files yet; `scratch` exists."""
        self._data = scratch / "data"
        self._parent = scratch / "run"
        self.out = self._parent / "out"
        self.note, self.log = scratch / "note", scratch / "log"

    def make_data(self) -> None:
        """Writes the inputs, in forks: this process starts no TensorFlow."""
        self._data.mkdir()
        smoke.write_data_sets(self._data)
        smoke.records(self._data)
        self._forked(lambda: smoke.encoder(self._data))
        training = SCENARIOS["run_classifier, training"]
        self._prepare(Scenario("", "", ()))
        # The classifier without its checkpoints: the inputs are the same for
        # each trial.
        if self.run(training):
            sys.exit(self.log.read_text())
        shutil.copytree(self.out, self._data / "classifier")
        old = dataclasses.replace(
            SCENARIOS["export_model"],
            flags=("--model_dir=DATA/model", "--output_dir=OUT"),
        )
        self._prepare(old)
        if self.run(old):
            sys.exit(self.log.read_text())
        shutil.copytree(self.out, self._data / "export")

    def _forked(self, action: Callable[[], None]) -> int | None:
        """Returns the exit code of a fork; None if it hung."""
        pid = os.fork()
        if not pid:
            code = 1
            try:
                action()
                code = 0
            except SystemExit as ended:
                code = ended.code or 0
            except BaseException:
                import traceback

                traceback.print_exc()
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(code)
        end = time.monotonic() + SECONDS
        while time.monotonic() < end:
            done, status = os.waitpid(pid, os.WNOHANG)
            if done:
                return os.waitstatus_to_exitcode(status)
            time.sleep(0.02)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        return None

    def _prepare(self, scenario: Scenario) -> None:
        """Empties the directory, or restores what is there before."""
        shutil.rmtree(self._parent, ignore_errors=True)
        self._parent.mkdir()
        if scenario.before:
            shutil.copytree(self._filled(scenario.before), self.out)

    def _filled(self, text: str) -> str:
        text = text.replace("DATA", str(self._data))
        return text.replace("OUT", str(self.out))

    def run(self, scenario: Scenario, fault: Fault | None = None) -> int | None:
        """Runs a command; returns its exit code, None if it hung.

        Its messages are in the file `log`; with a fault, the operation that
        failed is in `note`, or their number if there is none.
        """
        self.note.write_text("")

        def command():
            import importlib

            from foundation import config_flags
            from training import checkpoints

            log = open(self.log, "wb", buffering=0)
            for descriptor in (1, 2):
                os.dup2(log.fileno(), descriptor)
            checkpoints._RETRY_SECONDS = (0,) * len(checkpoints._RETRY_SECONDS)
            module = importlib.import_module(scenario.module)
            config = getattr(module, scenario.config)
            flags = map(self._filled, scenario.flags)
            if fault is not None:
                arm(self._parent, fault, self.note)
            try:
                config_flags.run(
                    config, module.main, [f"{scenario.module}.py", *flags]
                )
            finally:
                if fault is not None:
                    calls = faults_count()
                    arm(pathlib.Path("/nowhere"), Fault(), self.note)
                    with open(self.note, "a") as file:
                        file.write(f"calls {calls}\n")

        return self._forked(command)

    def _contents(self) -> dict[str, str]:
        """Returns `contents`, computed in a fork, as it uses TensorFlow."""

        def write():
            self.note.write_text(json.dumps(contents(self._parent)))

        assert self._forked(write) == 0
        return json.loads(self.note.read_text())

    def undisturbed(self, scenario: Scenario) -> tuple[int, dict[str, str]]:
        """Returns the number of operations, and the contents of the files."""
        self._prepare(scenario)
        if self.run(scenario, Fault()):
            sys.exit(self.log.read_text())
        calls = int(self.note.read_text().split()[-1])
        return calls, self._contents()

    def trial(
        self, scenario: Scenario, fault: Fault, expected: dict[str, str]
    ) -> tuple[str, str]:
        """Returns the operation that failed, and how the trial ended."""
        self._prepare(scenario)
        code = self.run(scenario, fault)
        lines = self.note.read_text().splitlines()
        call, _, path = lines[0].partition(" ") if lines else ("", "", "")
        if call in ("", "calls"):
            return "none", "not reached" if code == 0 else "failed: no fault"
        if code == 0:
            now = self._contents()
            if now.keys() > expected.keys():
                # What could not be removed is removed by the next command.
                if scenario.refused:
                    (self.out / scenario.refused).unlink()
                code = self.run(scenario)
                now = self._contents()
            if code == 0 and now == expected:
                return call, "harmless"
            return call, (
                f"failed: {call} {path}, exit code {code}: "
                + differing(now, expected)
            )
        problem = self._problem_of_message(code, path, fault)
        if problem:
            return call, f"failed: {call} {path}: {problem}"
        shown = self.log.read_text().splitlines()[-1]
        if self.run(scenario) != 0:
            again = self.log.read_text()[-2000:]
            return call, f"failed: {call} {path}, {shown}; then: {again}"
        now = self._contents()
        if now != expected:
            return call, (
                f"failed: {call} {path}, {shown}; then: "
                + differing(now, expected)
            )
        return call, "one line"

    def _problem_of_message(
        self, code: int | None, path: str, fault: Fault
    ) -> str | None:
        """Returns what is wrong with a command's end, None if nothing is."""
        text = self.log.read_text()
        if code is None:
            return f"hangs: {text[-500:]}"
        if code != 2 or "Traceback" in text:
            return f"exit code {code}: {text[-3000:]}"
        line = text.splitlines()[-1]
        if cause_of(fault) not in line:
            return f"no cause: {line}"
        named = re.findall(re.escape(str(self._parent)) + r"[^\s:;,'\"]*", line)
        final = final_name(path)
        if fault.error == LASTING:
            is_named = bool(named)
        else:
            is_named = any(final.startswith(name.rstrip("/")) for name in named)
        if not is_named:
            return f"no file: {line}"
        # The folder of an unfinished prediction is called x.incomplete.
        temporary = r"\.[0-9a-f]{12}\.incomplete|\.tempstate|\.tmp|\.saving"
        if re.search(temporary, line):
            return f"a temporary name: {line}"
        return None


def cause_of(fault: Fault) -> str:
    """Returns the system's words for a fault."""
    return os.strerror(number_of(fault))


def number_of(fault: Fault) -> int:
    """Returns the error number of a fault."""
    name = "ENOSPC" if fault.error == LASTING else fault.error
    return getattr(errno, name)


def final_name(path: str) -> str:
    """Returns the name that a temporary file or folder gets in the end."""
    path = re.sub(
        r"/\.([^/]+)\.[0-9a-f]{12}\.incomplete(/(new|old|lock))?", r"/\1", path
    )
    path = re.sub(r"/\.saving(/|$)", r"\1", path)
    return re.sub(r"\.tempstate\d+|/\.tmp\w+$", "", path)


def arm(folder: pathlib.Path, fault: Fault, note: pathlib.Path) -> None:
    """Begins to count operations below a folder, for a fault."""
    ctypes.CDLL(None).faults_arm(
        os.fsencode(folder),
        ctypes.c_long(fault.number),
        number_of(fault),
        int(fault.error == LASTING),
        os.fsencode(note),
    )


def faults_count() -> int:
    """Returns the number of operations since the last call of `arm`."""
    count = ctypes.CDLL(None).faults_count
    count.restype = ctypes.c_long
    return count()


def differing(now: dict[str, str], expected: dict[str, str]) -> str:
    """Returns the names of the files that differ."""
    found = []
    for name in sorted(now.keys() | expected.keys()):
        if name not in expected:
            found.append(f"{name} (left)")
        elif name not in now:
            found.append(f"{name} (missing)")
        elif now[name] != expected[name]:
            found.append(f"{name} (differs)")
    return ", ".join(found)


def contents(folder: pathlib.Path) -> dict[str, str]:
    """Returns a digest of every file, without times; events by their steps."""
    found, events = {}, collections.defaultdict(list)
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.is_dir():
            found[f"{name}/"] = ""
        elif path.name.startswith("events.out.tfevents"):
            events[str(path.parent.relative_to(folder))] += event_steps(path)
        else:
            found[name] = digest(path)
    found |= {f"{k}/events": json.dumps(sorted(v)) for k, v in events.items()}
    return found


def digest(path: pathlib.Path) -> str:
    """Returns the digest of a file without times."""
    from training import metric_writer

    if path.name in WITH_TIMES:
        return ""
    if path.suffix == ".jsonl" or path.name == "result.json":
        lines = path.read_text()
        if path.suffix == ".jsonl":
            values = [json.loads(line) for line in lines.splitlines()]
        else:
            values = [json.loads(lines)]
        for value in values:
            for name in (*metric_writer.TIMINGS, "seconds"):
                value.pop(name, None)
        return json.dumps(values)
    if re.search(r"model\.ckpt-.*\.index$", path.name):
        return tensors(str(path).removesuffix(".index"))
    if re.search(r"model\.ckpt-.*\.data-", path.name):
        return ""  # The tensors are compared with the index.
    return hashlib.sha256(path.read_bytes()).hexdigest()


def tensors(prefix: str) -> str:
    """Returns the digest of a checkpoint without the state of its host."""
    from foundation import tensor_files

    reader = tensor_files.open_reader(prefix)
    found = hashlib.sha256()
    for name in sorted(reader.get_variable_to_shape_map()):
        if name != "training_state":  # Has times.
            found.update(name.encode() + reader.get_tensor(name).tobytes())
    return found.hexdigest()


def event_steps(path: pathlib.Path) -> list:
    """Returns step, tag and value of events, without those of times."""
    import tensorflow as tf
    from google.protobuf import message

    from training import metric_writer

    data, found = path.read_bytes(), []
    while len(data) >= 16:
        (length,) = struct.unpack("<Q", data[:8])
        try:
            event = tf.compat.v1.Event.FromString(data[12 : 12 + length])
        except message.DecodeError:
            return [*found, [-1, "damaged", ""]]
        data = data[16 + length :]
        for value in event.summary.value:
            if value.tag not in metric_writer.TIMINGS:
                body = value.tensor.SerializeToString().hex()
                found.append([event.step, value.tag, body])
    return found


def prove_that_tensorflow_is_hit(scratch: pathlib.Path) -> None:
    """Checks that every operation of a TFRecord's writer can be made to fail.

    Raises:
      AssertionError: one cannot.
    """
    import tensorflow as tf

    folder, note = scratch / "proof", scratch / "note"
    folder.mkdir()

    def write():
        with tf.io.TFRecordWriter(str(folder / "x.tfrecord")) as writer:
            writer.write(b"record")

    arm(folder, Fault(), note)
    write()
    calls, hit = faults_count(), collections.Counter()
    for number in range(1, calls + 1):
        note.write_text("")
        arm(folder, Fault(number, "EIO"), note)
        try:
            write()
        except tf.errors.OpError as error:
            assert "Input/output error" in str(error), error
            hit[note.read_text().split()[0]] += 1
        arm(pathlib.Path("/nowhere"), Fault(), note)
    assert hit.total() == calls and hit["fwrite"], (calls, hit)
    print(f"Operations of a TFRecord's writer that fail: {dict(hit)}")


def plan(calls: dict[str, int], seed: int) -> list[tuple[str, Fault]]:
    """Returns all trials in random order."""
    trials = [
        (name, Fault(number, error))
        for name, count in calls.items()
        for number in range(1, count + 1)
        for i, error in enumerate(ERRORS)
        if not i or (number + i) % RARE == 0
    ]
    random.Random(seed).shuffle(trials)
    return trials


def tables(counts: dict[str, int], calls: dict[str, int]) -> str:
    """Returns the counts by command, and by operation and error."""
    rows = collections.defaultdict(collections.Counter)
    for key, count in counts.items():
        name, error, call, end = key.split("|")
        for row in (name, f"{error} {call}"):
            rows[row][end] += count
            rows[row]["trials"] += count
        rows["all"][end] += count
        rows["all"]["trials"] += count
    columns = ("trials", *GOOD, "failed")
    lines = [f"{'':28} operations" + "".join(f"{x:>12}" for x in columns)]
    for row in (*calls, *sorted(rows.keys() - calls.keys() - {"all"}), "all"):
        cells = "".join(f"{rows[row][x]:12}" for x in columns)
        lines.append(f"{row:28} {calls.get(row, ''):>10}{cells}")
    return "\n".join(lines)


def main() -> int:
    """Runs the trials; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sample", type=int, help="trials; default: all")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--state", help="JSON file of counts; is continued")
    parser.add_argument("--only", help="one of the commands")
    parser.add_argument("--minutes", type=float, help="ends after so long")
    options = parser.parse_args()
    scratch = pathlib.Path(os.environ[LIBRARY]).parent
    end = time.monotonic() + 60 * (options.minutes or 1e9)

    import foundation.tensorflow_setup  # noqa: F401

    for scenario in SCENARIOS.values():
        __import__(scenario.module)
    runner = Runner(scratch)
    if runner._forked(lambda: prove_that_tensorflow_is_hit(scratch)):
        return 1
    runner.make_data()
    names = [options.only] if options.only else list(SCENARIOS)
    expected, now = {}, {}
    for name in names:
        now[name], expected[name] = runner.undisturbed(SCENARIOS[name])
        _, again = runner.undisturbed(SCENARIOS[name])
        # E.g. a file with a time: only its presence is compared.
        varying = differing(again, expected[name])
        print(
            f"{name}: {now[name]} operations; varying: {varying or 'nothing'}",
            flush=True,
        )
    state = {"seed": options.seed, "calls": now, "done": 0, "counts": {}}
    path = pathlib.Path(options.state) if options.state else None
    if path and path.exists():
        state = json.loads(path.read_text())
    trials = plan(state["calls"], state["seed"])[: options.sample]
    failures = 0
    with contextlib.suppress(KeyboardInterrupt):  # Prints what was done.
        for name, fault in trials[state["done"] :]:
            if time.monotonic() > end:
                break
            call, ending = runner.trial(SCENARIOS[name], fault, expected[name])
            kind = ending.partition(":")[0]
            if kind == "failed":
                failures += 1
                print(
                    f"{name}, {fault.error} {fault.number}: {ending}",
                    flush=True,
                )
            key = "|".join((name, fault.error, call, kind))
            state["counts"][key] = state["counts"].get(key, 0) + 1
            state["done"] += 1
            if path:
                path.write_text(json.dumps(state))
    print(tables(state["counts"], state["calls"]))
    print(f"{state['done']} of {len(trials)} trials, {failures} failures")
    if not failures:
        shutil.rmtree(scratch)
    return int(failures > 0)


if __name__ == "__main__":
    if LIBRARY not in os.environ:
        preload(pathlib.Path(tempfile.mkdtemp(prefix="faults-")))
    with smoke.flags({"sample": 2, "only": "convert_checkpoint"}):
        sys.exit(main())
