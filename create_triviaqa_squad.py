r"""Makes SQuAD's JSON of TriviaQA's Wikipedia files, to train on it.

As the paper does (section 4.2): the first 400 words of every page that holds
an answer there.

    python create_triviaqa_squad.py \
        --input_file=triviaqa-rc/qa/wikipedia-train.json \
        --evidence_dir=triviaqa-rc/evidence/wikipedia \
        --output_file=triviaqa-train.json

The paper trains on it before it trains on SQuAD 1.1:

    python run_squad.py --do_train --train_file=triviaqa-train.json \
        --init_checkpoint=uncased_L-12_H-768_A-12 --output_dir=triviaqa ...
    python run_squad.py --do_train --train_file=train-v1.1.json \
        --init_checkpoint=triviaqa --output_dir=squad ...

Both at once, in one order of all questions, is one run:

    python run_squad.py --train_file=triviaqa-train.json,train-v1.1.json ...
"""

import dataclasses
import os

import foundation.tensorflow_setup  # noqa: F401
from foundation import config_flags, file_system
from tasks.squad import triviaqa

field = config_flags.field


@dataclasses.dataclass(frozen=True, kw_only=True)
class TriviaqaConfig:
    """Everything create_triviaqa_squad.py needs to know."""

    input_file: str = field("TriviaQA's questions, wikipedia-train.json.")
    evidence_dir: str = field("Folder of the pages, evidence/wikipedia.")
    output_file: str = field("Where SQuAD's JSON goes.")
    max_words: int = field("Of a page, from its beginning.", 400)

    def __post_init__(self):
        """Refuses numbers that cannot be meant."""
        if self.max_words < 1:
            raise ValueError(f"--max_words={self.max_words}: must be above 0")
        if self.output_file.endswith(file_system.COMPRESSED):
            raise ValueError(
                f"--output_file={self.output_file}: what is written is not "
                "compressed"
            )


def main(config: TriviaqaConfig) -> None:
    """Converts the questions and says how many there are."""
    made, counts = triviaqa.convert(
        config.input_file, config.evidence_dir, max_words=config.max_words
    )
    file_system.make_folder(os.path.dirname(config.output_file) or ".")
    file_system.write_text(config.output_file, triviaqa.to_json(made))
    print(
        f"{config.output_file}: {counts.kept} pages with an answer, of "
        f"{counts.pages} that {counts.questions} questions name; "
        f"{counts.missing} are not there, {counts.without_answer} have no "
        f"answer in their first {config.max_words} words"
    )


if __name__ == "__main__":
    config_flags.run(TriviaqaConfig, main)
