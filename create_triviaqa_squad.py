r"""Converts TriviaQA's Wikipedia files to SQuAD's JSON.

As in the paper (section 4.2), a paragraph is the first 400 words of a page, if
they contain an answer.

    python create_triviaqa_squad.py \
        --input_file=triviaqa-rc/qa/wikipedia-train.json \
        --evidence_dir=triviaqa-rc/evidence/wikipedia \
        --output_file=triviaqa-train.json

The paper trains on TriviaQA before SQuAD 1.1:

    python run_squad.py --do_train --train_file=triviaqa-train.json \
        --init_checkpoint=uncased_L-12_H-768_A-12 --output_dir=triviaqa ...
    python run_squad.py --do_train --train_file=train-v1.1.json \
        --init_checkpoint=triviaqa --output_dir=squad ...

One run on both, with all questions shuffled together:

    python run_squad.py --train_file=triviaqa-train.json,train-v1.1.json ...
"""

import dataclasses

from foundation import atomic, config_flags, file_system

field = config_flags.field


@dataclasses.dataclass(frozen=True, kw_only=True)
class TriviaqaConfig:
    """The flags of create_triviaqa_squad.py."""

    input_file: str = field("TriviaQA's questions, wikipedia-train.json.")
    evidence_dir: str = field("Directory of the pages, evidence/wikipedia.")
    output_file: str = field("The file of SQuAD's JSON to write.")
    max_words: int = field("The number of words of a page to use.", 400)

    def __post_init__(self):
        """Checks the flags."""
        if self.max_words < 1:
            raise ValueError(f"--max_words={self.max_words}: must be above 0")
        if self.output_file.endswith(file_system.COMPRESSED):
            raise ValueError(
                f"--output_file={self.output_file}: the output cannot be "
                "compressed"
            )


config_flags.parse_early(TriviaqaConfig, __name__)

import foundation.tensorflow_setup  # noqa: F401
from tasks.squad import triviaqa


def main(config: TriviaqaConfig) -> None:
    """Converts the questions and prints their numbers."""
    file_system.check_output(config.output_file, "output_file")
    squad, counts = triviaqa.convert(
        config.input_file, config.evidence_dir, max_words=config.max_words
    )
    atomic.write_text(config.output_file, triviaqa.to_json(squad))
    print(
        f"{config.output_file}: {counts.kept} pages with an answer, of "
        f"{counts.pages} that {counts.questions} questions name; "
        f"{counts.missing} do not exist, {counts.without_answer} have no "
        f"answer in their first {config.max_words} words"
    )


if __name__ == "__main__":
    config_flags.run(TriviaqaConfig, main)
