"""BERT in Python: load a model, predict, tokenize, or get a Keras model.

    import bert

    model = bert.load("output/mrpc")
    model.predict([("He left.", "He went away.")])
        -> [Classification(label="1", score=0.91, probabilities={...})]

`pip install -e .` in the checkout makes this module, and nothing else of it,
importable in an environment: its path file names the folder python/, which has
a link to this module. The folders of the checkout are imported here, by the
names that they have in the checkout, wherever Python was started.
docs/serving.md shows every task.
"""

import importlib
import importlib.machinery
import pathlib
import sys
import warnings

_CHECKOUT = pathlib.Path(__file__).resolve().parent
_FOLDERS = (
    *("foundation", "modeling", "data", "training"),
    *("weights", "finetuning", "tasks", "serving"),
)


def _import_folders() -> None:
    """Imports the folders of the checkout, whatever has their names elsewhere.

    Python's path is then as before; their modules are found without it.

    Raises:
      ImportError: another module of such a name has been imported before.
    """
    for name in _FOLDERS:
        own = _CHECKOUT / name / "__init__.py"
        if name in sys.modules:
            known = getattr(sys.modules[name], "__file__", None)
            if not _is_file(known, own):
                raise ImportError(
                    f"import bert: it needs {own.parent}, but the name "
                    f"{name!r} is taken by {known or 'another module'}, which "
                    "has been imported before: rename that"
                )
            continue
        other = importlib.machinery.PathFinder.find_spec(name)
        # A folder without modules, e.g. of data files, has no origin.
        if other and other.origin and not _is_file(other.origin, own):
            warnings.warn(
                f"after `import bert`, `import {name}` gives {own.parent}, "
                f"not {other.origin}",
                stacklevel=3,
            )
    sys.path.insert(0, str(_CHECKOUT))
    try:
        for name in _FOLDERS:
            importlib.import_module(name)
    finally:
        sys.path.remove(str(_CHECKOUT))


def _is_file(path: str | None, own: pathlib.Path) -> bool:
    """Returns whether a path, perhaps through links, is that of a file."""
    return path is not None and pathlib.Path(path).resolve() == own


_import_folders()

from foundation import errors  # noqa: E402
from serving import api, predictors  # noqa: E402

load = api.load
InputError = errors.InputError
# What `load` returns, and what its `predict` and `tokenize` return.
Model = api.Model
Answer = predictors.Answer
Choice = predictors.Choice
Classification = predictors.Classification
Entity = predictors.Entity
Labels = predictors.Labels
Token = api.Token
Word = predictors.Word

__all__ = [
    *("load", "InputError", "Model"),
    *("Answer", "Choice", "Classification", "Entity"),
    *("Labels", "Token", "Word"),
]
for _name in __all__:  # As tracebacks and repr show them.
    globals()[_name].__module__ = __name__
