"""The tables of the BERT paper (arXiv 1810.04805) as declarations of runs.

Each function takes the `Experiments` of a scale and returns one `Table`: the
paper's numbers, and which commands measure ours. Numbers of the tables that
differ between the two versions of the paper are those of version 2.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence

from paper.experiments import Experiments, Masking
from paper.protocol import Finding, Row, Score, Size, Table, over_pretrainings

_GLUE = {  # task -> (metric, column)
    "mnli": ("accuracy", "MNLI-m"),
    "qqp": ("f1", "QQP"),
    "qnli": ("accuracy", "QNLI"),
    "sst-2": ("accuracy", "SST-2"),
    "cola": ("matthews_correlation", "CoLA"),
    "sts-b": ("spearman", "STS-B"),
    "mrpc": ("f1", "MRPC"),
    "rte": ("accuracy", "RTE"),
}
_MATCHED = ("mnli", "accuracy", "MNLI-m")


def table_1(lab: Experiments) -> Table:
    """GLUE (section 4.1)."""
    paper = {
        "base": (84.6, 83.4, 71.2, 90.5, 93.5, 52.1, 85.8, 88.9, 66.4),
        "large": (86.7, 85.9, 72.1, 92.7, 94.9, 60.5, 86.5, 89.3, 70.1),
    }
    columns = [column for _, column in _GLUE.values()]
    columns.insert(1, "MNLI-mm")
    has_data = [task for task in _GLUE if lab.has_glue(task)]
    has_mismatched = "mnli" in has_data and lab.has_glue(
        "mnli", "dev_mismatched"
    )
    has_tests = lab.has_glue("ax", "test") and all(
        lab.has_glue(task) and lab.has_glue(task, "test")
        for task in (*_GLUE, "wnli")
    )
    rows, other_commands, notes = [], [], []
    for task in set(_GLUE) - set(has_data):
        notes.append(f"{_GLUE[task][1]} is not run: --glue_dir has no data.")
    if not has_tests:
        notes.append(
            "No submission.zip: --glue_dir lacks some of GLUE's training and "
            "test sets."
        )
    for name, values in paper.items():
        if name not in lab.scale.models:
            continue
        model = lab.start(name)
        submission = f"glue_submission_{name}" if has_tests else None
        seeds = lab.scale.seeds if name == "large" else None
        scores = {
            _GLUE[task][1]: lab.sentence_task(
                model, task, _GLUE[task][0], seeds=seeds, submission=submission
            )
            for task in has_data
        }
        if has_mismatched:
            scores["MNLI-mm"] = dataclasses.replace(
                scores["MNLI-m"], metric="mismatched_accuracy"
            )
        if submission:
            wnli = lab.sentence_task(model, "wnli", submission=submission)
            mnli = scores["MNLI-m"]
            other_commands += [
                *wnli.commands,
                lab.glue_diagnostics(mnli, submission),
            ]
        rows.append(
            Row(
                label=f"BERT-{name.title()}",
                paper=dict(zip(columns, values, strict=True)),
                scores=scores,
            )
        )
    return Table(
        name="1",
        title="GLUE",
        protocol="Batch size 32, 3 epochs, the best of several learning rates "
        "(Large: and restarts) on the development set. The paper's numbers "
        "are of the test set, ours of the development set: submit the zip "
        "file to GLUE's server for test scores.",
        statistic="best",
        rows=rows,
        other_commands=other_commands,
        notes=sorted(notes),
    )


def table_2(lab: Experiments) -> Table:
    """SQuAD 1.1 (section 4.2)."""
    rows = []
    base = lab.start("base")
    rows.append(_squad_row(lab, "BERT-Base (single)", (80.8, 88.5), [base]))
    if "large" in lab.scale.models:
        larges = [lab.start("large", i) for i in range(lab.scale.ensemble)]
        with_triviaqa = [lab.triviaqa(model) for model in larges]
        for label, models, paper in (
            ("BERT-Large (single)", larges[:1], (84.1, 90.9)),
            ("BERT-Large (ensemble)", larges, (85.8, 91.8)),
            ("BERT-Large + TriviaQA (single)", with_triviaqa[:1], (84.2, 91.1)),
            ("BERT-Large + TriviaQA (ensemble)", with_triviaqa, (86.2, 92.2)),
        ):
            rows.append(_squad_row(lab, label, paper, models))
    return Table(
        name="2",
        title="SQuAD 1.1, development set",
        protocol="3 epochs, learning rate 5e-5, batch size 32. TriviaQA: "
        "the first 400 words of a page, if they contain an answer, before "
        "SQuAD. The systems of an ensemble differ in their seed of SQuAD and, "
        "if several are given in --large_checkpoint, in their pre-trained "
        "checkpoint.",
        statistic="best",
        rows=rows,
    )


def _squad_row(
    lab: Experiments, label: str, paper: Sequence[float], models: Sequence
) -> Row:
    """Returns the row of a single system or of an ensemble."""
    columns = dict(zip(("exact_match", "f1"), ("EM", "F1"), strict=True))
    scores = {}
    for metric, column in columns.items():
        if len(models) == 1:
            scores[column] = lab.squad(models[0], metric)
        else:
            systems = [
                lab.squad(model, metric, seed=seed)
                for seed, model in enumerate(models, 1)
            ]
            scores[column] = lab.ensemble(systems, metric)
    return Row(
        label=label,
        paper=dict(zip(columns.values(), paper, strict=True)),
        scores=scores,
    )


def table_3(lab: Experiments) -> Table:
    """SQuAD 2.0 (section 4.3)."""
    name = list(lab.scale.models)[-1]  # The largest.
    model = lab.start(name)
    return Table(
        name="3",
        title="SQuAD 2.0, development set",
        protocol="2 epochs, learning rate 5e-5, batch size 48, no TriviaQA; "
        "the threshold of no answer maximizes F1 on the development set. The "
        "paper's numbers are of BERT-Large.",
        statistic="best",
        rows=[
            Row(
                label=f"BERT-{name.title()} (single)",
                paper={"EM": 78.7, "F1": 81.9},
                scores={
                    "EM": lab.squad(model, "exact", version="v2.0"),
                    "F1": lab.squad(model, "f1", version="v2.0"),
                },
            )
        ],
    )


def table_4(lab: Experiments) -> Table:
    """SWAG (section 4.4)."""
    rows = [
        Row(
            label=f"BERT-{name.title()}",
            paper={"accuracy": value},
            scores={"accuracy": lab.swag(lab.start(name))},
        )
        for name, value in (("base", 81.6), ("large", 86.6))
        if name in lab.scale.models
    ]
    return Table(
        name="4",
        title="SWAG, development set",
        protocol="3 epochs, learning rate 2e-5, batch size 16.",
        statistic="best",
        rows=rows,
    )


def table_5(lab: Experiments) -> Table:
    """Ablation of the pre-training tasks (section 5.1)."""
    tasks = (
        _MATCHED,
        ("qnli", "accuracy", "QNLI"),
        ("mrpc", "accuracy", "MRPC"),
        ("sst-2", "accuracy", "SST-2"),
    )
    paper = {
        "masked LM + next sentence": (84.4, 88.4, 86.7, 92.7, 88.5),
        "no next sentence": (83.9, 84.9, 86.5, 92.6, 87.9),
        "left to right": (82.1, 84.3, 77.5, 92.1, 77.8),
        "left to right + BiLSTM": (82.1, 84.1, 75.7, 91.6, 84.9),
    }
    objectives = (
        *("masked_lm_and_next_sentence", "masked_lm"),
        *("left_to_right", "left_to_right"),
    )
    rows = []
    for (label, values), objective in zip(
        paper.items(), objectives, strict=True
    ):
        models = [
            dataclasses.replace(model, bilstm="BiLSTM" in label)
            for model in lab.pretrainings(
                lab.scale.base,
                objective=objective,
                next_sentence_loss_weight=1.0,
            )
        ]
        seeds = lab.scale.seeds
        scores = {
            column: over_pretrainings(
                lab.sentence_task(model, task, metric, seeds=seeds)
                for model in models
            )
            for task, metric, column in tasks
        }
        scores["SQuAD F1"] = over_pretrainings(
            lab.squad(model, seeds=seeds) for model in models
        )
        rows.append(
            Row(
                label=label,
                paper=dict(zip(scores, values, strict=True)),
                scores=scores,
            )
        )
    full, masked_lm, left_to_right, bilstm = (row.scores for row in rows)
    return Table(
        name="5",
        title="Pre-training tasks, development sets",
        protocol="All models have the size of Base and read the same records; "
        f"the next-sentence loss has the weight 1. {_means(lab)}",
        statistic="mean",
        rows=rows,
        findings=[
            *_better(
                "Next-sentence prediction helps {}", full, masked_lm, "QNLI"
            ),
            *_better(
                "Masked LM is better than left-to-right on {}",
                masked_lm,
                left_to_right,
                *("MNLI-m", "MRPC", "SQuAD F1"),
            ),
            *_better(
                "A BiLSTM improves the left-to-right model on {}",
                bilstm,
                left_to_right,
                "SQuAD F1",
            ),
            *_better(
                "The left-to-right model with a BiLSTM remains behind the "
                "bidirectional model on {}",
                masked_lm,
                bilstm,
                "SQuAD F1",
            ),
        ],
    )


def table_6(lab: Experiments) -> Table:
    """Ablation of the model size (section 5.2)."""
    paper = {
        Size(3, 768, 12): (5.84, 77.9, 79.8, 88.4),
        Size(6, 768, 3): (5.24, 80.6, 82.2, 90.7),
        Size(6, 768, 12): (4.68, 81.9, 84.8, 91.3),
        Size(12, 768, 12): (3.99, 84.4, 86.7, 92.9),
        Size(12, 1024, 16): (3.54, 85.7, 86.9, 93.3),
        Size(24, 1024, 16): (3.23, 86.6, 87.8, 93.7),
    }
    tasks = (
        _MATCHED,
        ("mrpc", "accuracy", "MRPC"),
        ("sst-2", "accuracy", "SST-2"),
    )
    rows = []
    sizes = lab.scale.sizes
    for size in sizes:
        models = lab.pretrainings(
            size, is_compared=size in (sizes[0], sizes[-1])
        )
        scores = {
            "perplexity": over_pretrainings(
                map(lab.masked_lm_perplexity, models)
            )
        }
        scores |= {
            column: over_pretrainings(
                lab.sentence_task(model, task, metric, seeds=lab.scale.seeds)
                for model in models
            )
            for task, metric, column in tasks
        }
        values = dict(zip(scores, paper.get(size, ()), strict=False))
        rows.append(Row(label=str(size), paper=values, scores=scores))
    smallest, largest = rows[0].scores, rows[-1].scores
    return Table(
        name="6",
        title="Model size (layers/hidden units/heads): perplexity of masked "
        "tokens on held-out text; development sets",
        protocol="The paper's numbers are the means of 5 restarts of "
        "fine-tuning, its held-out text is of its own corpus. " + _means(lab),
        statistic="mean",
        rows=rows,
        findings=_better(
            "The largest model is better than the smallest on {}",
            largest,
            smallest,
            *(column for _, _, column in tasks),
        ),
    )


def table_7(lab: Experiments) -> Table:
    """CoNLL-2003: fine-tuning and the feature-based approach (section 5.3)."""
    rows = []
    for name, dev, test in (("large", 96.6, 92.8), ("base", 96.4, 92.4)):
        if name not in lab.scale.models:
            continue
        model = lab.start(f"{name}_cased")
        rows.append(
            Row(
                label=f"fine-tuned {name.title()}",
                paper={"dev F1": dev, "test F1": test},
                scores={
                    "dev F1": lab.entities(model),
                    "test F1": lab.entities(model, "test"),
                },
            )
        )
    model = lab.start("base_cased")
    for label, features, value in (
        ("embeddings", "embeddings", 91.0),
        ("second-to-last layer", "second_to_last", 95.6),
        ("last layer", "last", 94.9),
        ("weighted sum of the last four", "weighted_sum_last_four", 95.9),
        ("last four concatenated", "concat_last_four", 96.1),
        ("weighted sum of all layers", "weighted_sum_all", 95.5),
    ):
        rows.append(
            Row(
                label=f"Base, features: {label}",
                paper={"dev F1": value},
                scores={"dev F1": lab.frozen_entities(model, features)},
            )
        )
    return Table(
        name="7",
        title="CoNLL-2003 named entities",
        protocol="Maximal document context, tags predicted from the first "
        "token of a word, no CRF. The paper's models are cased; without a "
        "cased checkpoint, ours are pre-trained as --do_lower_case says. "
        "Fine-tuning: mean of restarts. The paper's test F1 is a mean, too; "
        "ours is that of the run that is best on the development set. "
        "Features: a two-layer BiLSTM on the frozen encoder; ours: mean of "
        "restarts.",
        statistic="mean",
        rows=rows,
    )


def table_8(lab: Experiments) -> Table:
    """Ablation of the masking procedure (appendix C.2)."""
    standard, always, random = Masking(), Masking(1.0, 0.0), Masking(0.0, 1.0)
    rows = {}
    for masking, values in (
        (standard, (84.2, 95.4, 94.9)),
        (always, (84.3, 94.9, 94.0)),
        (Masking(0.8, 0.2), (84.1, 95.2, 94.6)),
        (Masking(0.8, 0.0), (84.4, 95.2, 94.7)),
        (Masking(0.0, 0.8), (83.7, 94.8, 94.6)),
        (random, (83.6, 94.9, 94.6)),
    ):
        if lab.scale.maskings and str(masking) not in lab.scale.maskings:
            continue
        models = lab.pretrainings(
            lab.scale.base,
            masking=masking,
            is_compared=masking in (standard, always, random),
        )
        scores = {
            "MNLI-m": over_pretrainings(
                lab.sentence_task(model, "mnli", seeds=lab.scale.seeds)
                for model in models
            ),
            "NER fine-tuned": over_pretrainings(map(lab.entities, models)),
            "NER feature-based": over_pretrainings(
                lab.frozen_entities(model, "concat_last_four")
                for model in models
            ),
        }
        rows[masking] = Row(
            label=f"{masking} (mask-same-random)",
            paper=dict(zip(scores, values, strict=True)),
            scores=scores,
        )
    return Table(
        name="8",
        title="Masking procedures, development sets",
        protocol=f"All models have the size of Base. {_means(lab)} "
        "Feature-based: the last four layers, concatenated.",
        statistic="mean",
        rows=list(rows.values()),
        findings=[
            *_better(
                "Always [MASK] is worse than the standard masking for {}",
                rows[standard].scores,
                rows[always].scores,
                "NER feature-based",
            ),
            *_better(
                "Only random tokens are worse than the standard masking for {}",
                rows[standard].scores,
                rows[random].scores,
                "MNLI-m",
            ),
        ],
    )


def figure_5(lab: Experiments) -> Table:
    """Number of training steps (appendix C.1)."""
    rows = []
    for label, objective in (
        ("masked LM", "masked_lm_and_next_sentence"),
        ("left to right", "left_to_right"),
    ):
        models = lab.pretrainings(lab.scale.base, objective=objective)
        rows.append(
            Row(
                label=label,
                paper={},
                scores={
                    f"{step:,} steps": over_pretrainings(
                        lab.sentence_task(
                            lab.at_step(model, step),
                            "mnli",
                            seeds=lab.scale.seeds,
                        )
                        for model in models
                    )
                    for step in lab.scale.checkpoints
                },
            )
        )
    masked_lm, left_to_right = (list(row.scores.values()) for row in rows)
    half = lab.scale.checkpoints.index(lab.num_steps // 2)
    return Table(
        name="figure5",
        title="MNLI-m accuracy after fine-tuning from checkpoints of "
        "pre-training",
        protocol="The learning rate of pre-training falls over all steps. The "
        f"paper prints a plot without numbers. {_means(lab)}",
        statistic="mean",
        rows=rows,
        findings=[
            Finding(
                statement="The second half of pre-training improves MNLI-m",
                larger=masked_lm[-1],
                smaller=masked_lm[half],
            ),
            Finding(
                statement="Masked LM ends above left-to-right",
                larger=masked_lm[-1],
                smaller=left_to_right[-1],
            ),
        ],
    )


def _means(lab: Experiments) -> str:
    """Returns the sentence on the number of our runs."""
    scale = lab.scale
    text = f"We fine-tune with {scale.seeds} restarts from"
    if scale.pretraining_seeds == 1:
        return f"{text} one pre-trained model of each row."
    return (
        f"{text} each of {scale.pretraining_seeds} pre-trained models, which "
        "differ in their seed and share their records; rows that no statement "
        "compares have one model."
    )


def _better(
    statement: str,
    larger: Mapping[str, Score],
    smaller: Mapping[str, Score],
    *columns: str,
) -> list[Finding]:
    return [
        Finding(
            statement=statement.format(column),
            larger=larger[column],
            smaller=smaller[column],
        )
        for column in columns
    ]


TABLES: dict[str, Callable[[Experiments], Table]] = {
    "1": table_1,
    "2": table_2,
    "3": table_3,
    "4": table_4,
    "5": table_5,
    "6": table_6,
    "7": table_7,
    "8": table_8,
    "figure5": figure_5,
}
