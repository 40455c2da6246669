"""Models of the Hugging Face Hub by name: hf://google-bert/bert-base-uncased.

    hub.local("hf://google-bert/bert-base-uncased")    # a folder of the cache
    hub.local("hf://owner/name@v1.0")                  # a branch, tag or commit
    hub.local("stars")                                 # "stars"

The package huggingface_hub downloads what is read, once, into its cache. Its
environment variables have their usual effect: HF_HOME, HF_HUB_OFFLINE,
HF_ENDPOINT, HF_TOKEN. What runs store is the name, never the folder.
"""

import functools
import glob
import os
import re

from foundation import errors

SCHEME = "hf://"
# "bert-base-uncased", "google-bert/bert-base-uncased".
_NAME = r"(?:[\w-][\w.-]*/)?[\w-][\w.-]*"
# The config, the tokenizer, and what models of this project and of
# sentence-transformers have beside their weights.
_BESIDE = [
    *("config.json", "bert_config.json", "vocab.txt", "tokenizer.json"),
    *("tokenizer_config.json", "README.md"),
    "run.json",
    *("crf.json", "question_answering.json"),
    *("added_tokens.json", "special_tokens_map.json"),
    *("modules.json", "sentence_bert_config.json"),
    "config_sentence_transformers.json",
    *("[0-9]_*/config.json", "[0-9]_*/model.safetensors"),
]
# The first of these that is there.
_WEIGHTS = (
    [
        *("model.safetensors", "model.safetensors.index.json"),
        "model-*-of-*.safetensors",
    ],
    ["tf_model.h5"],
    ["pytorch_model.bin"],
)


def local(path: str) -> str:
    """Returns a path as it is, or the folder in the cache of a name of the Hub.

    A process uses one version of a model, whatever happens on the Hub.

    Raises:
      InputError: there is no such model, the network or the package fails.
    """
    return _download(path.rstrip("/")) if path.startswith(SCHEME) else path


def hint(path: str) -> str:
    """Returns the end of a message on a path where nothing is.

    It is "" unless the path can be a name on the Hub.
    """
    if not re.fullmatch(_NAME, path) or path.endswith(".ckpt"):
        return ""
    # What is needed; the Hub has the weights in other forms, too.
    return (
        f"; a model on the Hugging Face Hub is {SCHEME}{path} (needs the "
        "package huggingface_hub), or is downloaded first: "
        f"hf download {path} config.json vocab.txt tokenizer_config.json "
        f"model.safetensors --local-dir {os.path.basename(path)}"
    )


@functools.cache
def _download(path: str) -> str:
    name = path.removeprefix(SCHEME)
    if not re.fullmatch(_NAME + r"(?:@[\w./-]+)?", name):
        raise errors.InputError(
            f"{path}: the name of a model is needed, such as "
            f"{SCHEME}google-bert/bert-base-uncased"
        )
    try:
        import huggingface_hub
    except ModuleNotFoundError as error:
        raise errors.InputError(
            f"{path}: {error}: pip install huggingface_hub"
        ) from error
    repository, _, revision = name.partition("@")
    try:
        for weights in _WEIGHTS:
            folder = huggingface_hub.snapshot_download(
                repository,
                revision=revision or None,
                allow_patterns=_BESIDE + weights,
            )
            patterns = (os.path.join(glob.escape(folder), x) for x in weights)
            if any(map(glob.glob, patterns)):
                break
    # Those of the library and of its network are not all OSErrors.
    except Exception as error:
        raise errors.InputError(
            f"{path}: cannot be read from the Hub: {errors.reason(error)}"
        ) from error
    return folder
