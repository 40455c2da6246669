"""The life of extract_features.py, from top to bottom."""

import os
from typing import Any

from data import text_files
from finetuning import given_model
from foundation import file_system
from tasks.features import extraction
from tasks.features.settings import ExtractFlags
from weights import sentence_modules

_USUAL_LENGTH = 128


def extract(flags: ExtractFlags) -> None:
    """Writes the layers of every line.

    Raises:
      InputError: a flag, a file or the model does not fit.
    """
    path = flags.output_file
    if path != text_files.STANDARD_INPUT:
        file_system.check_output(path, "output_file")
    lines = text_files.open_lines(flags.input_file)
    model = given_model.read(
        flags.init_checkpoint,
        bert_config_file=flags.bert_config_file,
        vocab_file=flags.vocab_file,
        do_lower_case=flags.do_lower_case,
        max_seq_length=flags.max_seq_length,
    )
    assert model.weights is not None  # They have been found.
    modules = sentence_modules.open_modules(
        file_system.folder_of(model.weights),
        pooling=None if flags.pooling == "auto" else flags.pooling,
        normalize=flags.normalize,
        max_seq_length=flags.max_seq_length,
    )
    layers = flags.layers or ((-1,) if modules.is_pooled else (-1, -2, -3, -4))
    extraction.check_layers(layers, model.config)
    max_seq_length = min(
        modules.max_seq_length or _USUAL_LENGTH,
        model.config.max_position_embeddings,
    )
    task = extraction.Extraction(
        model,
        layers,
        modules,
        max_seq_length=max_seq_length,
        form=flags.output_format,
    )

    import foundation.tensorflow_setup  # noqa: F401
    from finetuning import devices, network, prediction
    from tasks.features import heads

    opened = devices.open_devices(flags.devices, None)
    opened.check_batch_sizes(batch_size=flags.batch_size)
    encoder = network.Network(
        heads.LayersHead(layers, modules),
        model.config,
        devices=opened,
        max_seq_length=max_seq_length,
        attention=model.start.settings.attention,
    )
    encoder.load(model.weights, model.tokenizer)
    examples = extraction.read(lines)
    sizes: dict[str, Any] = {
        "batch_size": flags.batch_size,
        "most": task.block_size(flags.batch_size),
    }
    if path == text_files.STANDARD_INPUT:
        prediction.print_blocks(task, encoder, examples, task.layout, **sizes)
        return
    made_from = {
        "weights": encoder.digest,
        "layers": layers,
        "vectors": [modules.pooling, modules.normalize, modules.truncate_dim],
        "dense layers": modules.dense_digest,
        "max_seq_length": max_seq_length,
        "form": flags.output_format,
        "precision": opened.precision,
        "lengths": encoder.lengths,
    }
    folder = f"{path}.blocks"
    blocks = prediction.predict_blocks(
        task, encoder, examples, folder, made_from, **sizes
    )
    file_system.make_folder(os.path.dirname(path) or ".")
    prediction.write_file(path, task.layout, blocks)
    file_system.remove_folder(folder)
