"""Pre-trains BERT on masked TFRecord shards, and evaluates it.

On a laptop, from the shards of create_pretraining_data.py:

    python run_pretraining.py \
        --bert_config_file=configs/uncased_L-4_H-256_A-4.json \
        --input_file='shards/train-*' --eval_file='shards/heldout-*' \
        --output_dir=pretrained --do_train --do_eval \
        --num_train_steps=1000 --num_warmup_steps=100 --learning_rate=5e-4

The paper's recipe is configs/pretraining_base.flags. Held out, BERT-Base ends
at a masked-LM accuracy of 0.60-0.64 and a next-sentence accuracy of 0.97-0.98.
"""

import dataclasses
from typing import Literal

import quiet  # noqa: F401
from modeling import models
from modeling.config import BertConfig
from tasks import model_files, pretraining, pretraining_data, results
from training import assembly, config_flags, evaluation, loop, run_config

field = config_flags.field


@dataclasses.dataclass(frozen=True, kw_only=True)
class PretrainingConfig(run_config.RunConfig):
    """Everything run_pretraining.py needs to know."""

    bert_config_file: str = field("JSON of the model's hyperparameters.")
    input_file: str = field("Comma list of shards or globs to train on.")
    eval_file: str | None = field(
        "Held-out shards; without them --input_file is evaluated.", None
    )
    vocab_file: str | None = field(
        "The vocabulary, where no manifest beside the shards names it.", None
    )
    objective: Literal[
        "masked_lm_and_next_sentence", "masked_lm", "left_to_right"
    ] = field("Which losses to train on.", "masked_lm_and_next_sentence")
    do_train: bool = field("Whether to train.", False)
    do_eval: bool = field("Whether to evaluate.", False)
    max_seq_length: int = field("As the shards were made.", 128)
    max_predictions_per_seq: int = field("As the shards were made.", 20)
    train_batch_size: int = field("Over all replicas.", 32)
    eval_batch_size: int = field("Over all replicas.", 8)
    num_train_steps: int = field("Where the learning rate reaches 0.", 100000)
    num_warmup_steps: int = field("Steps of rising learning rate.", 10000)
    max_eval_steps: int = field("Batches of an evaluation, at most.", 100)
    eval_every_steps: int = field(
        "Also evaluate while training, so often; 0 is never.", 0
    )

    def __post_init__(self):
        """Refuses combinations that cannot be meant."""
        super().__post_init__()
        if not (self.do_train or self.do_eval):
            raise ValueError("--do_train or --do_eval must be given")
        for name in (
            "train_batch_size",
            "eval_batch_size",
            "num_train_steps",
            "max_eval_steps",
            "max_seq_length",
            "max_predictions_per_seq",
        ):
            run_config.require(self, name, minimum=1)
        for name in ("num_warmup_steps", "eval_every_steps"):
            run_config.require(self, name, minimum=0)
        if self.num_warmup_steps >= self.num_train_steps and self.do_train:
            raise ValueError(
                f"--num_warmup_steps={self.num_warmup_steps}: must be less "
                f"than --num_train_steps={self.num_train_steps}"
            )


def main(config: PretrainingConfig) -> None:
    """Reads, builds, trains if asked, evaluates if asked, saves the model."""
    bert_config = BertConfig.from_json_file(config.bert_config_file)
    data = pretraining_data.open_inputs(
        input_file=config.input_file,
        eval_file=config.eval_file,
        vocab_file=config.vocab_file,
        max_seq_length=config.max_seq_length,
        max_predictions_per_seq=config.max_predictions_per_seq,
        config=bert_config,
    )
    task = pretraining.PretrainingTask(config.objective)
    model_files.check_output_dir(config.output_dir, bert_config)
    strategy = assembly.make_strategy(config)
    assembly.check_batch_sizes(
        config, strategy, config.train_batch_size, config.eval_batch_size
    )
    config_flags.write_run_config(config, config.output_dir)
    with strategy.scope():
        model = models.PretrainingModel(
            bert_config,
            attention=task.attention,
            next_sentence=task.predicts_next_sentence,
            recompute=config.recompute,
            seed=config.random_seed,
            dtype=assembly.dtype_policy(config),
        )
    evaluator = evaluation.Evaluator(task, model, strategy=strategy)

    def evaluate() -> dict[str, float]:
        values = evaluator(
            data.held_out.eval_batches(config.eval_batch_size),
            max_steps=config.max_eval_steps,
        )
        return pretraining.with_perplexity(values)

    def warm_start() -> None:
        model_files.warm_start(model, config.init_checkpoint)

    if config.do_train:
        batches = (config.train_batch_size, config.random_seed)
        assembly.train(
            config,
            task,
            model,
            strategy=strategy,
            make_batches=data.train.train_batches(*batches),
            describe_batch=data.train.describe_batch(*batches),
            diagnose=data.train.check_records,
            num_train_steps=config.num_train_steps,
            num_warmup_steps=config.num_warmup_steps,
            eval_every=config.eval_every_steps,
            evaluate=evaluate,
            warm_start=warm_start,
        )
        if assembly.is_chief(strategy):
            model_files.save(model, data.tokenizer, config.output_dir)
    if config.do_eval:
        step = loop.restore_model(model, config.output_dir)
        if step is None:
            model_files.require_weights(config.init_checkpoint)
            warm_start()
        values = {**evaluate(), "global_step": step or 0}
        if assembly.is_chief(strategy):
            results.write_eval_results(config.output_dir, values)


if __name__ == "__main__":
    config_flags.run(PretrainingConfig, main)
