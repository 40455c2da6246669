"""The flags of run_ner.py."""

import dataclasses
from collections.abc import Sequence
from typing import ClassVar, Literal

from foundation import config_flags, file_system
from jobs import run_config

field, group = config_flags.field, config_flags.group
affects_result = config_flags.affects_result
TAGGERS = "features"  # Folder in --output_dir of the runs of --features.
# Flags without an effect on feature-based taggers.
_NOT_OF_FEATURES = (
    "interactive",
    "text_file",
    "crf",
    "eval_every_steps",
    "eval_every_epoch",
    "early_stopping_patience",
    "reinit_layers",
    "layer_decay",
    "bilstm_size",
    "teacher_dir",
    "init_layers",
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Files:
    """The files of words with tags, and their columns or fields."""

    data_dir: str | None = field(
        "Directory of eng.train, eng.testa, eng.testb, or of train.txt, "
        "dev.txt, test.txt.",
        None,
    )
    train_file: str | None = field(
        "The training set; by default, the file in --data_dir.",
        None,
        affects="records",
    )
    dev_file: str | None = field(
        "The development set; by default, the file in --data_dir.",
        None,
        affects="evaluation",
    )
    test_file: str | None = field(
        "The test set: a file, a glob or a folder, with --features a file; by "
        "default, the file in --data_dir.",
        None,
    )
    word_column: int | None = field(
        "The column of words, counted from 0; by default as the model was "
        "trained, else 0.",
        None,
    )
    tag_column: int | None = field(
        "The column of tags, -1 for the last; by default as the model was "
        "trained, else -1.",
        None,
    )
    tokens_field: str | None = field(
        "The words' field in .jsonl and .parquet files; by default as the "
        'model was trained, else "tokens".',
        None,
    )
    tags_field: str | None = field(
        "The tags' field in .jsonl and .parquet files; by default as the model "
        'was trained, else "ner_tags".',
        None,
    )
    tag_names: str | None = field(
        "Names of integer tags, from 0: separated by commas, or a file with "
        "one per line. By default those in the metadata of a .parquet file.",
        None,
    )
    test_has_tags: bool = field("Whether --test_file has tags.", True)


@dataclasses.dataclass(frozen=True, kw_only=True)
class WindowSettings:
    """How words are arranged in windows."""

    max_seq_length: int = field(
        "Maximum number of tokens of a window; longer sentences are cut. "
        "Without --do_train, this and the other flags of windows are by "
        "default as the model was trained.",
        128,
        affects="records",
        at_least=3,
    )
    document_context: Literal["none", "maximal"] = field(
        "maximal: fill windows with the sentences around in the document.",
        "none",
        affects="records",
    )
    doc_stride: int = field(
        "With --document_context=maximal, consecutive sentences of about this "
        "many tokens in total share a window, which saves time; 0: one window "
        "per sentence.",
        0,
        affects="records",
        at_least=0,
    )

    def __post_init__(self):
        """Refuses a flag without effect."""
        if self.doc_stride and not self.has_context:
            raise ValueError("--doc_stride needs --document_context=maximal")

    @property
    def has_context(self) -> bool:
        """Whether windows are filled with the sentences around."""
        return self.document_context == "maximal"

    @property
    def values(self) -> dict[str, int | bool]:
        """The values that records and predictions depend on."""
        return dataclasses.asdict(self) | {"document_context": self.has_context}


@dataclasses.dataclass(frozen=True, kw_only=True)
class FeatureTagger:
    """A BiLSTM on the activations of a frozen encoder."""

    features: Literal[
        "none",
        "embeddings",
        "second_to_last",
        "last",
        "weighted_sum_last_four",
        "concat_last_four",
        "weighted_sum_all",
        "all",
    ] = field(
        "Freeze the encoder, and train a BiLSTM on these activations.", "none"
    )
    lstm_size: int = affects_result(
        "Units of each direction of the two LSTM layers.",
        768,
        at_least=1,
    )
    lstm_dropout: float = affects_result(
        "Dropout before each LSTM layer and the logits.",
        0.1,
        at_least=0,
        below=1,
    )
    lstm_learning_rate: tuple[float, ...] = affects_result(
        "Peak learning rate of the LSTM. Several, as in 1e-3,5e-4, make "
        "several runs of each choice of --features.",
        (1e-3,),
        at_least=1e-9,
        below=1,
    )

    @property
    def is_used(self) -> bool:
        """Whether such a tagger is trained or used."""
        return self.features != "none"


@dataclasses.dataclass(frozen=True, kw_only=True)
class NerConfig(run_config.FinetuningConfig):
    """Everything run_ner.py needs to know."""

    FIRST_FLAGS: ClassVar[Sequence[str]] = (
        "data_dir",
        "train_file",
        *run_config.FIRST_FLAGS,
    )

    files: Files = group(Files)
    windows: WindowSettings = group(WindowSettings)
    bilstm: FeatureTagger = group(FeatureTagger)
    text_file: str | None = field(
        "Raw text whose entities are written to entities.jsonl: a file, a "
        "glob or a folder of .txt; - reads standard input and writes standard "
        "output.",
        None,
    )
    tag_scheme: Literal["auto", "iob1", "bio2", "iobes", "plain"] = field(
        "The scheme of the files' tags; auto recognizes it.", "auto"
    )
    model_scheme: Literal["bio2", "iobes"] = affects_result(
        "The scheme of the model's labels.", "bio2"
    )
    entity_types: str | None = affects_result(
        "Types of entities, separated by commas; by default, those of the "
        "training set.",
        None,
    )
    do_eval: bool = field("Whether to evaluate on the development set.", False)
    eval_batch_size: int = field(
        "Windows per evaluation batch, over all replicas; with --features, "
        "sentences.",
        8,
        at_least=1,
    )
    interactive: bool = field("Show the entities of typed lines.", False)
    crf: bool = affects_result(
        "Predict sequences of tags with a CRF; stored with the model.",
        False,
    )

    def __post_init__(self):
        """Checks the flags and their combinations."""
        super().__post_init__()
        modes = ("do_train", "do_eval", "do_predict", "interactive")
        if not any(getattr(self, mode) for mode in modes):
            raise ValueError(
                "at least one of --do_train, --do_eval, --do_predict and "
                "--interactive must be given"
            )
        if self.text_file and not self.do_predict:
            raise ValueError("--text_file needs --do_predict")
        if self.text_file == "-" and self.interactive:
            raise ValueError(
                "--interactive and --text_file=- both read standard input"
            )
        self._check_features()

    @property
    def has_frozen_encoder(self) -> bool:
        """See FinetuningConfig."""
        return self.bilstm.is_used

    @property
    def remembered(self) -> Sequence[str]:
        """See FinetuningConfig."""
        names = ["word_column", "tag_column", "tokens_field", "tags_field"]
        if self.has_frozen_encoder:
            names += ["init_checkpoint", "bert_config_file", "vocab_file"]
            names += ["do_lower_case", "lstm_size"]
        names += [x.name for x in dataclasses.fields(WindowSettings)]
        development = {"dev_file", "data_dir"}
        if self.do_eval and not development & config_flags.chosen(self):
            # With --data_dir, --do_predict would predict its test set, too.
            is_text = self.text_file is not None
            names += ["dev_file"] if is_text else sorted(development)
        return names

    @property
    def max_seq_length(self) -> int:
        """See FinetuningConfig."""
        return self.windows.max_seq_length

    @property
    def batch_sizes(self) -> dict[str, int]:
        """See FinetuningConfig."""
        sizes = super().batch_sizes
        if self.do_eval or self.needs_evaluation:
            sizes["eval_batch_size"] = self.eval_batch_size
        return sizes

    @property
    def standard_input_flag(self) -> str | None:
        """See FinetuningConfig."""
        if self.interactive:
            return "interactive"
        return "text_file" if self.text_file == "-" else None

    def _check_features(self) -> None:
        """Refuses flags without an effect, and activations in a bucket."""
        given_flags = config_flags.given(self)
        if self.bilstm.features == "none":
            unused = [name for name in given_flags if name.startswith("lstm_")]
            if unused:
                raise ValueError(f"--{', --'.join(unused)}: needs --features")
            return
        file_system.refuse_remote(
            self.output_dir,
            "output_dir",
            "--features maps activations into memory",
        )
        unused = [
            f"--{name}" for name in _NOT_OF_FEATURES if name in given_flags
        ]
        if len(self.grid.learning_rate) > 1:
            unused.append("several values of --learning_rate")
        if unused:
            features = f"--features={self.bilstm.features}"
            raise ValueError(f"{features} excludes {', '.join(unused)}")

    @property
    def is_grid(self) -> bool:
        """Whether one of several runs is kept; --features keeps all runs."""
        return super().is_grid and not self.bilstm.is_used

    @property
    def feature_axes(self) -> run_config.Grid:
        """The runs of each choice of --features."""
        rates = self.bilstm.lstm_learning_rate
        return dataclasses.replace(self.grid, learning_rate=rates)

    @property
    def types(self) -> list[str]:
        """The types in --entity_types."""
        types = (self.entity_types or "").split(",")
        return [kind.strip() for kind in types if kind.strip()]
