"""Small data sets in the formats of the paper's tasks."""

import json
import pathlib
import random

_WORDS = (
    "river stone paper garden winter music letter window market bridge silver "
    "forest candle pepper orange travel doctor engine mirror planet summer "
    "thunder village whisper yellow shadow rocket pocket hammer island"
).split()
_NAMES = ["Paris", "Berlin", "Alice", "Bruno"]


class Maker:
    """Writes all data sets below one directory."""

    def __init__(self, root: pathlib.Path, seed: int = 1):
        """Writes nothing yet."""
        self._root = root
        self._random = random.Random(seed)

    def make(self) -> dict[str, str]:
        """Writes everything; returns the flags of python -m paper."""
        self._corpus("corpus.txt", 60)
        self._corpus("heldout.txt", 10)
        self._glue()
        self._squad()
        self._swag()
        self._conll()
        self._triviaqa()
        folders = ("glue", "squad", "swag", "conll", "triviaqa")
        return {
            "corpus": str(self._root / "corpus.txt"),
            "heldout_corpus": str(self._root / "heldout.txt"),
            **{f"{name}_dir": str(self._root / name) for name in folders},
        }

    def _sentence(self) -> str:
        count = self._random.randrange(4, 9)
        return " ".join(self._random.choices(_WORDS, k=count)) + " ."

    def _write(self, name: str, lines: list[str]) -> None:
        path = self._root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")

    def _corpus(self, name: str, documents: int) -> None:
        lines = []
        for _ in range(documents):
            lines += [self._sentence() for _ in range(8)] + [""]
        self._write(name, lines)

    def _rows(self, name: str, header: str, labels: list[str], count: int):
        """Writes a GLUE file; "?" in the header is a column without use."""
        columns = header.split(",") if header else []
        lines = ["\t".join(columns)] if columns else []
        for i in range(count):
            label = labels[i % len(labels)] if labels else ""
            cells = {
                "index": str(i),
                "id": str(i),
                "label": label,
                "gold_label": label,
                "label1": label,
                "score": label,
                "Quality": label,
                "is_duplicate": label,
            }
            lines.append(
                "\t".join(
                    cells.get(c) or (self._sentence() if _is_text(c) else "-")
                    for c in columns
                )
            )
        self._write(name, lines)

    def _glue(self) -> None:
        pair = "index,sentence1,sentence2"
        mnli = "index,a,b,c,d,e,f,g,sentence1,sentence2"
        for folder, train, test, labels in (
            ("SST-2", "sentence,label", "index,sentence", ["0", "1"]),
            (
                "MRPC",
                "Quality,#1 ID,#2 ID,#1 String,#2 String",
                "index,#1 ID,#2 ID,#1 String,#2 String",
                ["0", "1"],
            ),
            (
                "QQP",
                "id,a,b,question1,question2,is_duplicate",
                "id,question1,question2",
                ["0", "1"],
            ),
            (
                "QNLI",
                "index,question,sentence,label",
                "index,question,sentence",
                ["entailment", "not_entailment"],
            ),
            ("RTE", f"{pair},label", pair, ["entailment", "not_entailment"]),
            ("WNLI", f"{pair},label", pair, ["0", "1"]),
            (
                "STS-B",
                "index,a,b,c,d,e,f,sentence1,sentence2,score",
                "index,a,b,c,d,e,f,sentence1,sentence2",
                ["0.5", "2.5", "4.75"],
            ),
        ):
            self._rows(f"glue/{folder}/train.tsv", train, labels, 32)
            self._rows(f"glue/{folder}/dev.tsv", train, labels, 12)
            self._rows(f"glue/{folder}/test.tsv", test, [], 6)
        labels = ["contradiction", "entailment", "neutral"]
        labeled = f"{mnli},label1,gold_label"
        self._rows("glue/MNLI/train.tsv", labeled, labels, 32)
        for kind in ("matched", "mismatched"):
            self._rows(f"glue/MNLI/dev_{kind}.tsv", labeled, labels, 12)
            self._rows(f"glue/MNLI/test_{kind}.tsv", mnli, [], 6)
        self._rows("glue/diagnostic/diagnostic.tsv", pair, [], 6)
        for name, count in (("train", 32), ("dev", 12)):
            self._write(
                f"glue/CoLA/{name}.tsv",
                [f"gj04\t{i % 2}\t\t{self._sentence()}" for i in range(count)],
            )
        self._rows("glue/CoLA/test.tsv", "index,sentence", [], 6)

    def _squad(self) -> None:
        for version in ("1.1", "2.0"):
            for split, count in (("train", 24), ("dev", 12)):
                paragraphs = []
                for i in range(count):
                    context = " ".join(self._sentence() for _ in range(3))
                    answer = context.split()[i % 5]
                    start = context.index(answer)
                    answers = [{"text": answer, "answer_start": start}]
                    question = {"id": f"{split}{i}", "question": f"{answer} ?"}
                    if version == "2.0":
                        question["is_impossible"] = i % 3 == 0
                        answers = [] if i % 3 == 0 else answers
                    paragraphs.append(
                        {
                            "context": context,
                            "qas": [{**question, "answers": answers}],
                        }
                    )
                data = [{"title": "toy", "paragraphs": paragraphs}]
                text = json.dumps({"version": version, "data": data})
                self._write(f"squad/{split}-v{version}.json", [text])

    def _swag(self) -> None:
        header = (
            ",video-id,fold-ind,startphrase,sent1,sent2,gold-source,ending0,"
            "ending1,ending2,ending3,label"
        )
        for name, count in (("train", 24), ("val", 12)):
            lines = [header]
            for i in range(count):
                endings = ",".join(self._sentence() for _ in range(4))
                first, second = self._sentence(), "it"
                lines.append(
                    f"{i},v,{i},{first} {second},{first},{second},gold,"
                    f"{endings},{i % 4}"
                )
            self._write(f"swag/{name}.csv", lines)

    def _conll(self) -> None:
        for name, count in (("train", 32), ("testa", 12), ("testb", 12)):
            lines = ["-DOCSTART- -X- -X- O", ""]
            for i in range(count):
                entity = _NAMES[i % 4]
                tag = "I-LOC" if i % 4 < 2 else "I-PER"
                words = self._sentence().split()
                lines += [f"{word} NN I-NP O" for word in words]
                lines += [f"{entity} NNP I-NP {tag}", ". . O O", ""]
            self._write(f"conll/eng.{name}", lines)

    def _triviaqa(self) -> None:
        data = []
        for i in range(12):
            page = " ".join(self._sentence() for _ in range(3))
            answer = page.split()[1]
            self._write(f"triviaqa/evidence/wikipedia/page{i}.txt", [page])
            data.append(
                {
                    "Question": f"{answer} ?",
                    "QuestionId": f"q{i}",
                    "Answer": {
                        "Value": answer,
                        "Aliases": [answer],
                        "NormalizedAliases": [answer],
                    },
                    "EntityPages": [{"Filename": f"page{i}.txt"}],
                }
            )
        self._write(
            "triviaqa/qa/wikipedia-train.json", [json.dumps({"Data": data})]
        )


def _is_text(column: str) -> bool:
    names = ("sentence", "question", "String")
    return any(name in column for name in names)
