"""The flags of run_ner.py."""

import dataclasses
import os
from collections.abc import Sequence
from typing import ClassVar, Literal

from finetuning import flags as flags_lib
from foundation import config_flags, errors, file_system
from tasks.ner import windowing, word_files

field = config_flags.field
# Names of files in --data_dir, of which the first that is there is read.
_NAMES = {
    "train": ("eng.train", "train"),
    "dev": ("eng.testa", "dev", "valid", "validation"),
    "test": ("eng.testb", "test"),
}
_ENDINGS = ("", ".txt", ".conll", *word_files.TABLES)


@dataclasses.dataclass(frozen=True, kw_only=True)
class NerFlags(flags_lib.EvaluatedFlags):
    """Everything run_ner.py needs to know."""

    FIRST_FLAGS: ClassVar[Sequence[str]] = (
        "data_dir",
        "train_file",
        *flags_lib.FIRST_FLAGS,
    )
    MODES: ClassVar[Sequence[str]] = (
        *flags_lib.EvaluatedFlags.MODES,
        "interactive",
    )

    data_dir: str | None = field(
        "Directory of eng.train, eng.testa, eng.testb, or of train, dev and "
        "test with the ending .txt, .conll, .jsonl, .json or .parquet.",
        None,
        remembered=True,
    )
    train_file: str | None = field(
        "Training set, instead of the file in --data_dir.", None
    )
    dev_file: str | None = field(
        "Development set, instead of the file in --data_dir. A training "
        "evaluates it after each epoch.",
        None,
        remembered=True,
    )
    test_file: str | None = field(
        "Set to predict, a file, a glob or a folder; by default the file in "
        "--data_dir, unless there is a --text_file.",
        None,
    )
    text_file: str | None = field(
        "Raw text whose entities are written to entities.jsonl: a file, a "
        "glob or a folder of .txt; - reads standard input and writes standard "
        "output.",
        None,
        needs="do_predict",
    )
    word_column: str | None = field(
        "Column of the words: a number from 0, by default 0; of .jsonl and "
        ".parquet a name, by default tokens.",
        None,
        affects="records",
        remembered=True,
    )
    tag_column: str | None = field(
        "Column of the tags: a number from 0, by default -1, the last; of "
        ".jsonl and .parquet a name, by default ner_tags. none: the file has "
        "no tags.",
        None,
        affects="records",
        remembered=True,
    )
    tag_names: str | None = field(
        "Names of integer tags, from 0: separated by commas, or a file with "
        "one per line. By default those in the metadata of a .parquet file.",
        None,
        remembered=True,
    )
    tag_scheme: Literal["auto", "iob1", "bio2", "iobes", "plain"] = field(
        "The scheme of the files' tags; auto recognizes it.", "auto"
    )
    model_scheme: Literal["bio2", "iobes"] = field(
        "The scheme of the model's labels.", "bio2", affects="result"
    )
    entity_types: tuple[str, ...] | None = field(
        "Types of entities, separated by commas, if the training set lacks "
        "some.",
        None,
        affects="result",
        needs="do_train",
    )
    document_context: Literal["none", "maximal"] = field(
        "maximal: fill windows with the sentences around in the document.",
        "none",
        affects="records",
        remembered=True,
    )
    doc_stride: int = field(
        "With --document_context=maximal, consecutive sentences of about this "
        "many tokens in total share a window, which saves time; 0: one window "
        "per sentence.",
        0,
        affects="records",
        remembered=True,
        at_least=0,
        needs="document_context=maximal",
    )
    crf: bool = field(
        "Predict sequences of tags with a CRF; stored with the model.",
        False,
        affects="records",
        remembered=True,
    )
    features: Literal[
        "none",
        "embeddings",
        "second_to_last",
        "last",
        "weighted_sum_last_four",
        "concat_last_four",
        "weighted_sum_all",
    ] = field(
        "Freeze the encoder, and train a BiLSTM on these activations (the "
        "paper's Table 7).",
        "none",
        affects="records",
        remembered=True,
    )
    lstm_size: int = field(
        "With --features, units of each direction of the two LSTM layers.",
        768,
        affects="result",
        remembered=True,
        at_least=1,
    )
    lstm_dropout: float = field(
        "With --features, dropout before each LSTM layer and the logits.",
        0.1,
        affects="result",
        at_least=0,
        below=1,
    )
    interactive: bool = field("Show the entities of typed lines.", False)

    def __post_init__(self):
        """Refuses contradictory flags."""
        super().__post_init__()
        given = {*config_flags.given(self)}
        excluded = ["crf", "layer_decay", "bilstm_size", "teacher_dir"]
        excluded += ["init_layers", "freeze_layers"]
        features = f"--features={self.features}"
        trains = self.is_frozen and self.do_train
        flags_lib.refuse(
            (
                self.text_file == "-" and self.interactive,
                "--interactive and --text_file=- both read standard input",
            ),
            (
                self.crf and self.distillation.teacher_dir,
                "--crf: not with --teacher_dir",
            ),
            *(
                (
                    self.do_train and not self.is_frozen and name in given,
                    f"--{name} needs --features",
                )
                for name in ("lstm_size", "lstm_dropout")
            ),
            *(
                (
                    self.is_frozen and name in given,
                    f"{features} excludes --{name}",
                )
                for name in excluded
            ),
            (
                trains and self.init_checkpoint is None,
                f"{features} needs --init_checkpoint",
            ),
            (
                trains and "learning_rate" not in given,
                f"{features} needs the --learning_rate of a BiLSTM, such as "
                "1e-3",
            ),
        )
        if not self.is_frozen:
            return
        file_system.refuse_remote(
            self.output_dir,
            "output_dir",
            "--features maps activations into memory",
        )

    @property
    def is_frozen(self) -> bool:
        """Whether a BiLSTM reads the activations of a frozen encoder."""
        return self.features != "none"

    @property
    def windows(self) -> windowing.Windows:
        """How words are arranged in windows."""
        return windowing.Windows(
            self.max_seq_length, self.document_context, self.doc_stride
        )

    @property
    def columns(self) -> word_files.Columns:
        """The columns of words and tags."""
        names = self.tag_names and word_files.read_tag_names(self.tag_names)
        return word_files.Columns(self.word_column, self.tag_column, names)

    @property
    def evaluates_each_epoch(self) -> bool:
        """See FinetuningFlags."""
        return self.do_train and self.dev_file is not None

    def find(self, split: str) -> str | None:
        """Returns the file of a set, None if no flag names it.

        Raises:
          InputError: --data_dir has no such file.
        """
        path = getattr(self, f"{split}_file")
        if path is not None or self.data_dir is None:
            return path
        if split == "test" and self.text_file is not None:
            return None
        paths = [
            os.path.join(self.data_dir, name + ending + compressed)
            for name in _NAMES[split]
            for ending in _ENDINGS
            for compressed in ("", *file_system.COMPRESSED)
        ]
        found = next(filter(file_system.is_file, paths), None)
        if found is None:
            raise errors.InputError(
                f"{self.data_dir} has no {' or '.join(_NAMES[split])} with the "
                f"ending {', '.join(_ENDINGS[1:])}; --{split}_file names a file"
            )
        return found
