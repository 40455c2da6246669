"""Names on the Hugging Face Hub: how to download such a model."""

import os
import re

from foundation import hub

# Of a model, what is needed here; the Hub has the weights in other forms, too.
FILES = "config.json vocab.txt tokenizer_config.json model.safetensors"
# "bert-base-uncased", "google-bert/bert-base-uncased".
_NAME = re.compile(r"([\w-][\w.-]*/)?[\w-][\w.-]*")


def download_command(name: str, folder: str) -> str:
    """Returns the command that downloads a model into a folder."""
    return f"hf download {name} {FILES} --local-dir {folder}"


def hint(path: str) -> str:
    """Returns the end of a message on a path where nothing is.

    It is "" unless the path can be a name on the Hub.
    """
    if not _NAME.fullmatch(path) or path.endswith(".ckpt"):
        return ""
    return (
        f"; a model on the Hugging Face Hub is {hub.SCHEME}{path} (needs the "
        "package huggingface_hub), or is downloaded first: "
        f"{download_command(path, os.path.basename(path))}"
    )
