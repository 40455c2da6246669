"""Makes sentence_modules.json: vectors of sentence-transformers.

pip install torch==2.13.0 transformers==5.24.0 sentence-transformers==6.2.0
PYTHONPATH=. python tests/testdata/make_sentence_modules.py
"""

import json
import pathlib
import tempfile

import sentence_transformers

from tests.weights import sentence_models


def vectors(folder: pathlib.Path) -> list[list[float]]:
    """Encodes each text by itself, so that padding plays no part."""
    model = sentence_transformers.SentenceTransformer(str(folder), device="cpu")
    return [
        [round(x, 7) for x in model.encode(text).tolist()]
        for text in sentence_models.TEXTS
    ]


def main() -> None:
    """Writes the vectors of all models."""
    golden = {"sentence-transformers": sentence_transformers.__version__}
    with tempfile.TemporaryDirectory() as scratch:
        root = pathlib.Path(scratch)
        for name, arguments in sentence_models.CASES.items():
            golden[name] = vectors(
                sentence_models.save(root / name, **arguments)
            )
        golden["written"] = vectors(
            sentence_models.save_written(root / "written")
        )
    target = pathlib.Path(__file__).with_name("sentence_modules.json")
    target.write_text(json.dumps(golden) + "\n")


if __name__ == "__main__":
    main()
