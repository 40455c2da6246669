"""Makes pre-training shards from text, from end to end.

    text -> blocks    "tokenizing": one unit of work per block of text
         -> tables    "pairing": one unit and table per some documents
         -> shards    "writing": one unit per slice of a shard

A table holds instances of some documents: each is a pair of segments and a
random key. The global order is the order of all instances by their keys. Worker
processes run the units. The result of a unit depends on the recipe and the
unit's number alone, so the shards do not depend on the number of workers, or on
how often the run was killed.

The shards are ranges of the global order. A shard is written in slices, which
are then joined; masking is done when a slice is written:

    global order  0 ......... 40000 ......... 80000      ranks of instances
    shards        |     shard 0     |     shard 1     |
    slices        |  0  |  1  |  2  |  0  |  1  |  2  |  16,384 ranks at most

Memory does not grow with the corpus: a worker holds a block of text, the
instances of one table, or a slice. It grows with the longest document, which
one unit pairs.
"""

import collections
import itertools
import os
import shutil
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from absl import logging

from data import corpus, manifest, receipts, records, text_files, workers
from data.pretraining import instances, masking, packing, white_space, work_dir
from data.pretraining.recipe import Recipe
from data.tokenization import vocabulary
from foundation import errors, file_system, progress

SLICE_INSTANCES = 1 << 14
_BATCH_TOKENS = 1 << 17  # Tokens that are masked at once.
_TEXTS_AT_ONCE = 1000  # Few enough for TensorFlow to stay in one thread.
# Number of tables, and the least and most tokens of a table's documents; the
# limits take precedence.
_TABLES, _TABLE_TOKENS = 256, (1 << 19, 1 << 24)
_EXAMPLES_SHOWN = 3
_COPIED_BYTES = 1 << 22
Counts = dict[str, int]


def make(
    recipe: Recipe,
    *,
    manifest_path: str,
    pool: workers.Workers,
    allow_single_document: bool = False,
    blocks: Iterable[text_files.Block] | None = None,
) -> manifest.Manifest:
    """Makes the shards of a recipe and their manifest.

    Args:
      recipe: the text, the settings and the names of the shards.
      manifest_path: path of the manifest, in the directory of the shards.
      pool: runs the units; it affects the time, not the result.
      allow_single_document: whether the text may be one document, so that no
        next sentence can come from another document.
      blocks: blocks of text; by default all blocks of the recipe's files.

    Returns:
      The manifest, also if the shards were complete before.

    Raises:
      InputError: the text cannot be used, or the files that exist belong to
        another recipe or are damaged.
    """
    # An earlier call may have mapped another text.
    work_dir.token_store.cache_clear()
    if blocks is None:
        settings = recipe.settings
        blocks = corpus.read_blocks(
            recipe.input_files, settings.input_format, settings.text_column
        )
    prefix = manifest_path.removesuffix(manifest.SUFFIX)
    words_path = prefix + manifest.VOCABULARY_SUFFIX
    if file_system.exists(words_path):
        words = vocabulary.Vocabulary.from_file(words_path)
        if words.sha256 != recipe.vocabulary.sha256:
            raise errors.InputError(
                f"{words_path}: differs from {recipe.vocabulary.path}, a copy "
                "of which belongs there; choose another output directory or "
                "remove the file"
            )
    if file_system.exists(manifest_path):
        description = manifest.read(manifest_path)
        _check_complete(recipe, manifest_path, description)
        logging.info(
            f"{manifest_path}: these {description.record_count} records are "
            "complete; nothing to do."
        )
    else:
        file_system.make_folder(os.path.dirname(manifest_path) or ".")
        with work_dir.locked(recipe):
            counts, shards = _make_shards(
                recipe, pool, allow_single_document, blocks
            )
            description = _manifest(recipe, counts, shards, words_path)
            manifest.write(manifest_path, description)
    if not file_system.exists(words_path):
        recipe.vocabulary.to_file(words_path)
    work_dir.remove(recipe)
    return description


def _check_complete(
    recipe: Recipe, path: str, stored: manifest.Manifest
) -> None:
    """Refuses a manifest of another recipe, and damaged shards."""
    recipe.refuse_other(path, stored.job)
    for shard in stored.shards:
        name = os.path.join(os.path.dirname(path), shard.file)
        if not file_system.is_whole(name, shard.bytes, shard.crc32):
            raise errors.InputError(
                f"{name}: missing, or not the {shard.bytes} bytes with the "
                f"checksum that are recorded in {path}; remove the manifest "
                "and all of its shards to make them again"
            )


def _make_shards(
    recipe: Recipe,
    pool: workers.Workers,
    allow_single_document: bool,
    blocks: Iterable[text_files.Block],
) -> tuple[Counts, list[manifest.Shard]]:
    """Makes the shards; returns the counts of all and what each one is."""
    try:
        counts = _tokenize(recipe, pool, blocks)
        _check_documents(recipe, counts, allow_single_document)
        tables = _pair(recipe, pool, counts)
    except errors.InputError:
        # The user must change the text, which makes these files useless, or a
        # flag.
        file_system.remove_folder(recipe.work_dir)
        raise
    _log_text(counts, recipe.settings.dupe_factor)
    slices = slices_of_shards(recipe, counts["instances"], tables)
    _show_first_records(recipe, slices[0][0])
    return counts, _write_shards(recipe, pool, slices)


# Tokenizing.


def _tokenize(
    recipe: Recipe,
    pool: workers.Workers,
    blocks: Iterable[text_files.Block],
) -> Counts:
    """Completes the token store; returns its counts."""
    done = 0
    joined: list[str] = []  # Files whose last document goes on in the next.

    def units() -> Iterator[tuple[int, text_files.Block]]:
        last = None
        for number, block in enumerate(blocks):
            if last and last.path != block.path:
                line = last.data.removesuffix(b"\n").rpartition(b"\n")[2]
                if line.strip():
                    joined.append(last.path)
            last = block
            bar.update(block.file_bytes)
            yield number, block

    def write(path: str) -> Counts:
        nonlocal done
        counts: collections.Counter[str] = collections.Counter()
        for found in pool.map(write_block, units()):
            done += 1
            counts.update(found)
        work_dir.join_blocks(recipe, done, path)
        return dict(counts)

    total = sum(file_system.size(x) for x in recipe.input_files)
    with progress.bar(
        desc="tokenizing", total=total, unit="B", unit_scale=True
    ) as bar:
        path = work_dir.path_of(recipe, "store")
        receipt = work_dir.finished(recipe, path, write)
    if joined:
        logging.warning(
            "%s and %d other files do not end with a blank line: the last "
            "document of each continues in the next file",
            joined[0],
            len(joined) - 1,
        )
    for number in range(done):
        work_dir.discard(recipe, work_dir.block_path(recipe, number))
    return receipt.counts


def write_block(recipe: Recipe, unit: tuple[int, text_files.Block]) -> Counts:
    """Tokenizes a block of text, unless that was done before."""
    number, block = unit

    def write(path: str) -> Counts:
        encoded, counts = encode_block(recipe, block)
        with open(path, "wb") as file:
            np.savez(file, **encoded._asdict())
        return counts

    path = work_dir.block_path(recipe, number)
    return work_dir.finished(recipe, path, write).counts


def encode_block(
    recipe: Recipe, block: text_files.Block
) -> tuple[work_dir.EncodedBlock, Counts]:
    """Tokenizes one block of text; sentences without tokens are dropped."""
    parsed = corpus.parse(block, recipe.settings.input_format)
    if not recipe.settings.marks_words:
        tokens, lengths = _encode(recipe, parsed.texts)
        stored = tokens
    else:
        words = [*map(white_space.words_of, parsed.texts)]
        tokens, of_words = _encode(recipe, [*itertools.chain(*words)])
        stored = white_space.marked(tokens, of_words)
        ends = np.cumsum([0, *map(len, words)])
        lengths = np.diff(np.cumsum([0, *of_words])[ends])
    is_kept = lengths > 0
    # How many sentences before each are kept: its new index.
    new_index = np.concatenate([[0], np.cumsum(is_kept)])
    counts = {
        **parsed.counts,
        "sentences": int(is_kept.sum()),
        "sentences_without_pieces": int((~is_kept).sum()),
        "pieces": len(tokens),
        "unknown_pieces": int((tokens == recipe.vocabulary.unk_id).sum()),
    }
    encoded = work_dir.EncodedBlock(
        stored.astype(recipe.token_dtype),
        lengths[is_kept],
        new_index[np.unique(np.array(parsed.starts, np.int64))],
    )
    return encoded, counts


def _encode(
    recipe: Recipe, texts: Sequence[str]
) -> tuple[np.ndarray, np.ndarray]:
    """Returns the tokens of texts, and the number of tokens of each."""
    encoded = [
        recipe.tokenizer.encode(texts[start : start + _TEXTS_AT_ONCE])
        for start in range(0, len(texts) or 1, _TEXTS_AT_ONCE)
    ]
    lengths = [np.diff(x.row_splits) for x in encoded]
    tokens = np.concatenate([x.ids for x in encoded])
    return tokens, np.concatenate(lengths)


def _check_documents(
    recipe: Recipe, counts: Counts, allow_single_document: bool
) -> None:
    """Counts the documents; refuses no text, and one document only."""
    name = f"--input_file={recipe.input_files[0]}"
    if len(recipe.input_files) > 1:
        name += f" and {len(recipe.input_files) - 1} more"
    if not counts.get("pieces"):
        raise errors.InputError(f"{name}: holds no text")
    documents = len(work_dir.token_store(recipe).corpus.document_starts) - 1
    counts["documents"] = documents
    if documents == 1 and not allow_single_document:
        raise errors.InputError(
            f"{name}: holds one document only, so that no next sentence can "
            "come from another document; put a blank line after each document "
            "(the end of a file does not end one), or give "
            "--allow_single_document"
        )


# Pairing.


def _pair(recipe: Recipe, pool: workers.Workers, counts: Counts) -> int:
    """Writes all tables and their index; returns their number.

    Adds to `counts` what was counted of the instances.
    """
    store = work_dir.token_store(recipe)
    least, most = _TABLE_TOKENS
    size = -(-len(store.corpus.tokens) // _TABLES)
    units = [*enumerate(store.document_groups(min(max(size, least), most)))]
    total: collections.Counter[str] = collections.Counter()
    with progress.bar(desc="pairing", total=len(units), unit=" tables") as bar:
        for found in pool.map_on_disk(write_table, units):
            total.update(found)
            bar.update(1)
    instances.merge_indexes(
        work_dir.path_of(recipe, "index"), _tables(recipe, len(units))
    )
    counts.update(total, plans=len(units))
    shards = len(recipe.output_files)
    if total["instances"] < shards:
        raise errors.InputError(
            f"only {total['instances']} instances for {shards} shards: make "
            "fewer (--num_shards, or fewer names in --output_file)"
        )
    return len(units)


def write_table(recipe: Recipe, unit: tuple[int, range]) -> Counts:
    """Pairs the segments of some documents, unless that was done before.

    The unit is the table's number and the numbers of its documents. Counts the
    instances, those with a random next sentence, the tokens that truncation
    removed, and the tokens of the instances with [CLS] and [SEP].
    """
    number, documents = unit

    def write(path: str) -> Counts:
        store = work_dir.token_store(recipe)
        paired, lost = instances.pair_segments(
            store.corpus,
            documents,
            rule=recipe.settings,
            rng=recipe.rng("pairing", number),
            release=store.release,
        )
        with open(path, "wb") as file:
            file.write(instances.table_bytes(paired))
        return {
            "instances": len(paired),
            "random_next": int(paired["is_random"].sum()),
            "lost_pieces": lost,
            "kept_pieces": int(_lengths(paired).sum()),
        }

    path = work_dir.table_path(recipe, number)
    return work_dir.finished(recipe, path, write).counts


def _lengths(pairs: np.ndarray) -> np.ndarray:
    """Returns the lengths of INSTANCE [N] with [CLS] and [SEP]: int64 [N]."""
    return pairs["a_length"].astype(np.int64) + pairs["b_length"] + 3


def _tables(recipe: Recipe, count: int) -> list[str]:
    return [work_dir.table_path(recipe, number) for number in range(count)]


# Masking and writing.


class Slice(NamedTuple):
    """A range of ranks of the global order, and the file of its records."""

    path: str
    ranks: range
    tables: int  # Number of tables in the working directory.


def slices_of_shards(
    recipe: Recipe, total: int, tables: int
) -> list[list[Slice]]:
    """Divides the `total` instances into shards of equal size, into slices.

    Returns:
      For each shard of the recipe, its slices in order.
    """
    result, shards = [], len(recipe.output_files)
    for number, shard in enumerate(recipe.output_files):
        begin, end = (total * n // shards for n in (number, number + 1))
        count = -(-(end - begin) // SLICE_INSTANCES)
        bounds = [begin + (end - begin) * n // count for n in range(count + 1)]
        stem = work_dir.path_of(recipe, "slice")
        name = os.path.basename(shard)
        result.append(
            [
                Slice(f"{stem}-{n:05d}-of-{name}", range(*pair), tables)
                for n, pair in enumerate(itertools.pairwise(bounds))
            ]
        )
    return result


def _write_shards(
    recipe: Recipe, pool: workers.Workers, slices: list[list[Slice]]
) -> list[manifest.Shard]:
    """Writes the shards that are not complete; returns what each one is."""
    done = {x: work_dir.receipt(recipe, x) for x in recipe.output_files}
    pairs = zip(recipe.output_files, slices, strict=True)
    missing = {shard: x for shard, x in pairs if done[shard] is None}
    units = [*itertools.chain(*missing.values())]
    with progress.bar(desc="writing", total=len(units), unit=" slices") as bar:
        written = pool.map_on_disk(write_slice, units)
        for shard, parts in missing.items():
            count = 0
            for part in itertools.islice(written, len(parts)):
                count += part["records"]
                bar.update(1)
            done[shard] = _join(recipe, shard, parts, count)
    return [
        manifest.Shard(
            file=os.path.basename(shard),
            records=receipt.counts["records"],
            bytes=receipt.bytes,
            crc32=receipt.crc32,
        )
        for shard, receipt in done.items()
        if receipt is not None
    ]


def write_slice(recipe: Recipe, unit: Slice) -> Counts:
    """Writes the records of one slice, unless that was done before."""

    def write(path: str) -> Counts:
        batches = _batches(recipe, unit)
        encoded = (records.encode(recipe.schema, x) for x in batches)
        return {"records": records.write(path, encoded, unit.path)}

    return work_dir.finished(recipe, unit.path, write).counts


def _join(
    recipe: Recipe, shard: str, slices: list[Slice], count: int
) -> receipts.Receipt:
    """Concatenates the slices of a shard of `count` records.

    Concatenated TFRecord files are a TFRecord file, also if compressed.
    """

    def write(path: str) -> Counts:
        with open(path, "wb") as file:
            for part in slices:
                with open(part.path, "rb") as source:
                    shutil.copyfileobj(source, file, _COPIED_BYTES)
        return {"records": count}

    receipt = work_dir.finished(recipe, shard, write)
    for part in slices:
        work_dir.discard(recipe, part.path)
    return receipt


def _batches(recipe: Recipe, unit: Slice) -> Iterator[dict[str, np.ndarray]]:
    """Yields the features of a slice's records, _BATCH_TOKENS at once."""
    selected = instances.read_ranks(
        work_dir.path_of(recipe, "index"),
        _tables(recipe, unit.tables),
        unit.ranks,
    )
    rng = recipe.rng("masking", unit.ranks.start)
    step = max(1, _BATCH_TOKENS // recipe.settings.max_seq_length)
    rule = recipe.settings.packing
    if rule is None:
        for start in range(0, len(selected), step):
            yield _features(recipe, selected[start : start + step], rng)
        return
    lengths = _lengths(selected)
    rows = packing.pack(
        lengths,
        masking.prediction_counts(lengths, recipe.settings),
        rule,
        recipe.rng("packing", unit.ranks.start),
    )
    # Instances of one row (a record) must follow each other.
    order = np.argsort(rows, kind="stable")
    selected, rows = selected[order], rows[order]
    for first in range(0, int(rows[-1]) + 1, step):
        last = min(first + step, int(rows[-1]) + 1)
        begin, end = np.searchsorted(rows, (first, last))
        columns = _features(recipe, selected[begin:end], rng)
        yield packing.lay_out(
            columns, rows[begin:end] - first, last - first, rule
        )


def _features(
    recipe: Recipe, batch: np.ndarray, rng: np.random.Generator
) -> dict[str, np.ndarray]:
    """Builds the features of a batch of instances, INSTANCE [N]."""
    assembled = instances.assemble(
        work_dir.token_store(recipe).take,
        batch,
        max_seq_length=recipe.settings.max_seq_length,
        vocabulary=recipe.vocabulary,
    )
    input_ids, is_continuation = assembled.input_ids, None
    if recipe.settings.marks_words:
        input_ids, is_continuation = white_space.unmarked(input_ids)
    masked = masking.mask(
        input_ids,
        assembled.is_candidate,
        assembled.lengths,
        rule=recipe.settings,
        vocabulary=recipe.vocabulary,
        is_continuation=is_continuation,
        rng=rng,
    )
    return {
        **masked,
        "input_mask": assembled.input_mask,
        "segment_ids": assembled.segment_ids,
        "next_sentence_labels": batch["is_random"][:, None],
    }


# The manifest and the log.


def _manifest(
    recipe: Recipe,
    counts: Counts,
    shards: list[manifest.Shard],
    words_path: str,
) -> manifest.Manifest:
    settings = recipe.settings
    rule, packed = settings.packing, None
    if rule is not None:
        rows = sum(shard.records for shard in shards)
        full_rows = counts["kept_pieces"] / settings.max_seq_length
        packed = manifest.Packing(
            predictions_per_row=rule.predictions_per_row,
            instances_per_row=rule.instances_per_row,
            packing_factor=counts["instances"] / rows,
            efficiency=full_rows / rows,
            efficiency_unpacked=full_rows / counts["instances"],
        )
    return manifest.Manifest(
        kind=recipe.schema.kind,
        max_seq_length=settings.max_seq_length,
        max_predictions_per_seq=settings.max_predictions_per_seq,
        vocabulary={
            "file": os.path.basename(words_path),
            "size": len(recipe.vocabulary),
            "sha256": recipe.vocabulary.sha256,
        },
        tokenizer=settings.tokenizer,
        shards=tuple(shards),
        job=recipe.to_json(),
        totals=dict(sorted(counts.items())),
        packing=packed,
    )


def _log_text(counts: Counts, passes: int) -> None:
    """Logs what was read, and what was dropped and why."""
    tokens, sentences = counts["pieces"], counts["sentences"]
    logging.info(
        "Read %d documents (%.1f sentences each), %d sentences (%.1f tokens "
        "each), %d tokens (%.2f %% unknown).",
        *(counts["documents"], sentences / counts["documents"]),
        *(sentences, tokens / sentences),
        *(tokens, 100 * counts["unknown_pieces"] / tokens),
    )
    logging.info(
        "Dropped: %d rows without text, %d sentences without tokens, %d bytes "
        "that are not UTF-8, %.2f %% of the tokens by truncation.",
        counts["rows_without_text"],
        counts["sentences_without_pieces"],
        counts["invalid_bytes"],
        100 * counts["lost_pieces"] / tokens / passes,
    )
    logging.info(
        "%.1f %% of the next sentences are random: 50 %%, and more where "
        "documents or sequences hold few sentences.",
        100 * counts["random_next"] / counts["instances"],
    )


def log_totals(description: manifest.Manifest) -> None:
    """Logs what was written."""
    counts = description.totals
    if description.packing is not None:
        logging.info(
            "Packed %.2f instances a row: %.1f %% padding instead of %.1f %%.",
            description.packing["packing_factor"],
            100 - 100 * description.packing["efficiency"],
            100 - 100 * description.packing["efficiency_unpacked"],
        )
    logging.info("Wrote %d total instances", counts["instances"])


def _show_first_records(recipe: Recipe, unit: Slice) -> None:
    """Logs the first records of a slice, before all others are written."""
    columns = next(_batches(recipe, unit))
    tokens = recipe.vocabulary.tokens
    count = min(_EXAMPLES_SHOWN, len(columns["input_ids"]))
    logging.info(
        "The first %d records, without padding. Most tokens to predict are "
        "replaced by [MASK]; they are at masked_lm_positions, their ids are "
        "masked_lm_ids. next_sentence_labels is 1 if B is a random text.",
        count,
    )
    for row in range(count):
        is_real = columns["input_mask"][row] > 0
        ids = columns["input_ids"][row][is_real].tolist()
        lines = [
            "*** Example ***",
            "tokens: " + " ".join(tokens[i] for i in ids),
        ]
        is_target = columns["masked_lm_weights"][row] > 0
        targets = columns["masked_lm_ids"][row][is_target]
        lines.append("to predict: " + " ".join(tokens[i] for i in targets))
        used = {len(is_real): is_real, len(is_target): is_target}
        for name in recipe.schema.names:
            values = columns[name][row]
            values = values[used.get(len(values), slice(None))].tolist()
            lines.append(f"{name}: {' '.join(f'{x:g}' for x in values)}")
        logging.info("%s", "\n".join(lines))
