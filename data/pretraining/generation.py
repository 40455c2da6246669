"""Makes pre-training shards from text, from end to end.

    text -> token store    "tokenizing": one unit of work per block of text
         -> tables         "pairing": one unit and table per some documents
         -> shards         "writing": one unit per slice of a shard

A table holds instances of some documents: each is a pair of segments and a
random key. The global order is the order of all instances by their keys. Worker
processes run the units. The result of a unit depends on the recipe and the
unit's number alone, so the shards do not depend on the number of workers, or on
how often the run was killed.

The shards are ranges of the global order. A large shard is written in slices,
which are then joined; masking is done when a slice is written:

    global order  0 ......... 40000 ......... 80000      ranks of instances
    shards        |     shard 0     |     shard 1     |
    slices        |  0  |  1  |  2  |  0  |  1  |  2  |  16,384 ranks at most

Memory does not grow with the corpus: a worker holds a block of text, the
instances of one table, or a slice. It grows with the longest document, which
one unit pairs. Several runs on machines that share the working directory may
divide the shards among them (`ShardGroup`).
"""

import collections
import dataclasses
import itertools
import os
import shutil
import typing
import zlib
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf
from absl import logging

from data import corpus, manifest, records, text_files, workers
from data.pretraining import (
    instances,
    masking,
    packing,
    progress,
    white_space,
    work_dir,
)
from data.pretraining.recipe import Recipe
from data.tokenization import vocabulary
from foundation import atomic, errors, file_system

SLICE_INSTANCES = 1 << 14
_BATCH_TOKENS = 1 << 17  # Tokens that are masked at once.
_TEXTS_AT_ONCE = 1000  # Few enough for the tokenizer to stay in one thread.
# Number of tables, and the least and most tokens of a table's documents; the
# limits take precedence. A document of more tokens, some 70 MB of text, is far
# longer than a book and gets a warning.
_TABLES, _TABLE_TOKENS = 256, (1 << 19, 1 << 24)
_EXAMPLES_SHOWN, _TOKENS_SHOWN = 3, 10
# Sentences of English, German, Russian and Chinese have 20 to 40 tokens.
_LONG_SENTENCE = 70
# Words of Chinese have 1.7 characters, those of English 1.5 tokens.
_LONG_WORD = 4
# Usual values are 0.5 to 0.6 (random) and below 0.1 (lost). Sentences of 33
# tokens in sequences of 32, as in the demo, give 0.77 and 0.58; Wikipedia's
# paragraphs in sequences of 128 give 0.88 and 0.62.
_MOST_RANDOM, _MOST_LOST = 0.85, 0.6
_FEW_SENTENCES = 1.5  # On average in a document.
# Measured costs, for the progress bar: seconds of one core per MB of text; the
# last two also per pass over the text.
_TOKENIZING, _PAIRING, _WRITING = 0.10, 0.005, 0.06


@dataclasses.dataclass(frozen=True)
class ShardGroup:
    """The shards that one of several runs makes: every count-th."""

    index: int = 0  # The number of this run: 0 ... count - 1.
    count: int = 1

    def own(self, values: Iterable) -> list:
        """Returns the shards or units of this run."""
        return list(values)[self.index :: self.count]

    def own_first(self, values: Iterable) -> list:
        """Returns all units, beginning with those of this run.

        Runs then begin with different units, so that few units are done twice.
        """
        values = list(values)
        turns = [(self.index + n) % self.count for n in range(self.count)]
        return [x for turn in turns for x in values[turn :: self.count]]


ALL_SHARDS = ShardGroup()


def make(
    recipe: Recipe,
    *,
    manifest_path: str,
    pool: workers.Workers,
    group: ShardGroup = ALL_SHARDS,
    allow_single_document: bool = False,
    blocks: Iterable[text_files.Block] | None = None,
) -> manifest.Manifest | None:
    """Makes the shards of a recipe and their manifest.

    Args:
      recipe: the text, the settings and the names of the shards.
      manifest_path: path of the manifest, in the directory of the shards.
      pool: runs the units; it affects the time, not the result.
      group: the shards that this run makes.
      allow_single_document: whether the text may be one document, so that no
        next sentence can come from another document.
      blocks: blocks of text; by default all blocks of the recipe's files.

    Returns:
      The manifest, also if the shards were complete before; None if shards of
      other groups are still missing.

    Raises:
      InputError: the text cannot be used, or the files that exist belong to
        another recipe.
    """
    work_dir.unmap()  # An earlier call may have mapped another text.
    if blocks is None:
        blocks = corpus.read_blocks(
            recipe.input_files, recipe.input_format, recipe.text_column
        )
    prefix = manifest_path.removesuffix(manifest.SUFFIX)
    words_path = prefix + manifest.VOCABULARY_SUFFIX
    description = _find_complete(recipe, manifest_path, words_path)
    if description is not None:
        logging.info(
            f"{manifest_path}: these {description.record_count} records are "
            "complete; nothing to do."
        )
        if not file_system.exists(words_path):
            recipe.vocabulary.to_file(words_path)
    else:
        role = "" if group.count == 1 else f"-{group.index}"
        with work_dir.locked(recipe, group.own(recipe.output_files), role):
            counts = _make_shards(
                recipe, pool, group, allow_single_document, blocks
            )
            receipts = [
                work_dir.receipt(recipe, x) for x in recipe.output_files
            ]
            complete = [receipt for receipt in receipts if receipt]
            if len(complete) < len(receipts):
                logging.info(
                    "Shards of other groups are missing; the run that makes "
                    "the last of them writes the manifest."
                )
                return None
            description = _manifest(recipe, counts, complete, words_path)
            recipe.vocabulary.to_file(words_path)
            manifest.write(manifest_path, description)
    work_dir.remove(recipe)
    return description


def _find_complete(
    recipe: Recipe, path: str, words_path: str
) -> manifest.Manifest | None:
    """Returns the manifest if it is the recipe's and its shards exist."""
    if file_system.exists(words_path):
        words = vocabulary.Vocabulary.from_file(words_path)
        if words.sha256 != recipe.vocabulary.sha256:
            raise errors.InputError(
                f"{words_path}: differs from {recipe.vocabulary.path}, a copy "
                "of which belongs there; choose another output directory or "
                "remove the file"
            )
    if not file_system.exists(path):
        return None
    stored = manifest.read(path)
    work_dir.refuse_changes(path, stored.job, recipe)
    for shard in stored.shards:
        name = os.path.join(os.path.dirname(path), shard.file)
        if not file_system.exists(name):
            raise errors.InputError(
                f"{path}: its shard {name} is missing; remove the manifest and "
                "the other shards to make them again"
            )
        if file_system.size(name) != shard.bytes:
            raise errors.InputError(
                f"{name}: not the {shard.bytes} bytes that are recorded in "
                f"{path}; remove all shards and the manifest to make them again"
            )
    return stored


def _make_shards(
    recipe: Recipe,
    pool: workers.Workers,
    group: ShardGroup,
    allow_single_document: bool,
    blocks: Iterable[text_files.Block],
) -> dict[str, int]:
    """Makes the group's shards; returns the counts of all shards."""
    passes = recipe.pairing.dupe_factor
    costs = {
        "tokenizing": _TOKENIZING,
        "pairing": _PAIRING * passes,
        "writing": _WRITING * passes,
    }
    with progress.PhaseBar(costs) as bar:
        try:
            with work_dir.one_at_a_time(recipe, "tokenizing"):
                counts = _tokenize(recipe, pool, bar, blocks)
            _check_documents(recipe, counts, allow_single_document)
            tables, pairs = _pair(recipe, pool, group, bar)
        except errors.InputError:
            # The user must change the text, which makes these files useless,
            # or a flag. Other groups may still use them.
            if group.count == 1:
                file_system.remove_folder(recipe.work_dir)
            raise
        bar.clear()
        _warn_of_pairs(recipe, counts, pairs)
        mine = group.own(slices_of_shards(recipe, pairs.instances, tables))
        _show_first_records(recipe, mine[0][0])
        _write_shards(recipe, pool, mine, bar)
    return counts | pairs._asdict() | {"plans": tables}


# Tokenizing.


def _tokenize(
    recipe: Recipe,
    pool: workers.Workers,
    bar: progress.PhaseBar,
    blocks: Iterable[text_files.Block],
) -> dict[str, int]:
    """Completes the token store; returns its counts."""
    writer = work_dir.token_writer(recipe)
    if not writer.done:
        num_complete = writer.blocks  # An earlier run may have been killed.
        # Of the blocks that are being tokenized.
        sizes: collections.deque[int] = collections.deque()
        total = sum(file_system.size(x) for x in recipe.input_files)
        with bar.phase("tokenizing", total, "MB", 1e6) as update:

            def missing_blocks():
                for number, block in enumerate(blocks):
                    if number < num_complete:
                        update(block.file_bytes, is_new=False)
                        continue
                    sizes.append(block.file_bytes)
                    yield block

            for encoded in pool.map(encode_block, missing_blocks()):
                if writer.blocks == 0:
                    bar.clear()
                    _warn_of_prose(recipe, encoded)
                writer.append(encoded)
                update(sizes.popleft())
        writer.finish()
    writer.close()
    return dict(writer.counts)


def _warn_of_prose(recipe: Recipe, encoded: work_dir.EncodedBlock) -> None:
    """Logs a warning if the first text is not divided as the flags say."""
    mean = len(encoded.tokens) / max(len(encoded.lengths), 1)
    if recipe.input_format == "sentences" and mean > _LONG_SENTENCE:
        logging.warning(
            f"--input_format=sentences: the lines of {recipe.input_files[0]} "
            f"have {mean:.0f} tokens on average, so they are probably "
            "paragraphs; give --input_format=paragraphs to split them into "
            "sentences"
        )
    if recipe.words is None or not len(encoded.tokens):
        return
    _, continues = white_space.unmarked(encoded.tokens)
    mean = len(continues) / max((~continues).sum(), 1)
    if mean > _LONG_WORD:
        logging.warning(
            f"--words={recipe.words}: the words of {recipe.input_files[0]} "
            f"have {mean:.1f} tokens on average, so it was probably not "
            "divided by a segmenter; words that have more tokens than may be "
            "predicted are never masked"
        )


def encode_block(
    recipe: Recipe, block: text_files.Block
) -> work_dir.EncodedBlock:
    """Tokenizes one block of text; sentences without tokens are dropped."""
    parsed = corpus.parse(block, recipe.input_format)
    if recipe.words is None:
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
    counts = collections.Counter(
        **parsed.counts,
        sentences=int(is_kept.sum()),
        sentences_without_pieces=int((~is_kept).sum()),
        pieces=len(tokens),
        unknown_pieces=int((tokens == recipe.vocabulary.unk_id).sum()),
    )
    return work_dir.EncodedBlock(
        stored.astype(recipe.token_dtype),
        lengths[is_kept],
        new_index[np.unique(np.array(parsed.starts, np.int64))],
        counts,
    )


def _encode(
    recipe: Recipe, texts: Sequence[str]
) -> tuple[np.ndarray, np.ndarray]:
    """Returns the tokens of texts, and the number of tokens of each."""
    encoded = [
        recipe.tokenizer.encode(texts[start : start + _TEXTS_AT_ONCE])
        for start in range(0, len(texts), _TEXTS_AT_ONCE)
    ]
    none = [np.zeros(0, np.int64)]
    tokens = np.concatenate([x.ids for x in encoded] or none)
    lengths = [np.diff(x.row_splits) for x in encoded] or none
    return tokens, np.concatenate(lengths)


def _check_documents(
    recipe: Recipe, counts: dict[str, int], allow_single_document: bool
) -> None:
    """Sets counts["documents"]; refuses no text, and one document only."""
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


class PairCounts(NamedTuple):
    """Counts of the instances in one table, or in all, as in the manifest."""

    instances: int
    random_next: int  # Instances with a random next sentence.
    lost_pieces: int  # Tokens that truncation removed.
    kept_pieces: int  # Tokens of the instances, with [CLS] and [SEP].


def _pair(
    recipe: Recipe,
    pool: workers.Workers,
    group: ShardGroup,
    bar: progress.PhaseBar,
) -> tuple[int, PairCounts]:
    """Writes all tables and their index; returns their number and counts."""
    store = work_dir.token_store(recipe)
    least, most = _TABLE_TOKENS
    size = -(-len(store.corpus.tokens) // _TABLES)
    documents_of_tables = store.document_groups(min(max(size, least), most))
    _warn_of_long_document(recipe, store.corpus, documents_of_tables)
    units = group.own_first(enumerate(documents_of_tables))
    counts_of_tables = []
    with bar.phase("pairing", len(units), "tables") as update:
        for counts in pool.map_on_disk(write_table, units):
            counts_of_tables.append(counts)
            update(1)
    instances.merge_indexes(
        work_dir.path_of(recipe, "index"), _tables(recipe, len(units))
    )
    total = PairCounts(*np.sum(counts_of_tables, axis=0).tolist())
    shards = len(recipe.output_files)
    if total.instances < shards:
        raise errors.InputError(
            f"only {total.instances} instances for {shards} shards: make fewer "
            "(--num_shards, or fewer names in --output_file)"
        )
    return len(units), total


def _warn_of_long_document(
    recipe: Recipe, text: instances.Corpus, documents_of_tables: list[range]
) -> None:
    """Logs a warning if one document exceeds the size of a table."""
    # Such a document is the last one of its table.
    last = np.array([documents[-1] for documents in documents_of_tables])
    begin, end = (
        text.sentence_starts[text.document_starts[n]] for n in (last, last + 1)
    )
    longest = np.argmax(end - begin)
    count = (end - begin)[longest]
    if count > _TABLE_TOKENS[1]:
        first = text.tokens[begin[longest] :][:_TOKENS_SHOWN]
        first, _ = white_space.unmarked(first)
        begins = " ".join(recipe.vocabulary.tokens[i] for i in first)
        logging.warning(
            f"--input_file: the document that begins with '{begins}' has "
            f"{count} tokens; one process holds the instances of a document, "
            "so put blank lines between its parts"
        )


def _warn_of_pairs(
    recipe: Recipe, counts: dict[str, int], pairs: PairCounts
) -> None:
    """Logs a warning if the text can hardly teach the next sentence."""
    is_random = pairs.random_next / pairs.instances
    lost = pairs.lost_pieces / counts["pieces"] / recipe.pairing.dupe_factor
    tokens = counts["pieces"] / counts["sentences"]
    sentences = counts["sentences"] / counts["documents"]
    if is_random > _MOST_RANDOM or lost > _MOST_LOST:
        hint = ""
        if sentences < _FEW_SENTENCES:
            hint = "; a blank line ends a document, so there must be none "
            hint += "between the sentences of one"
        logging.warning(
            f"{100 * is_random:.0f} % of the next sentences are random and "
            f"truncation drops {100 * lost:.0f} % of the tokens, because "
            f"sentences are long ({tokens:.0f} tokens on average) for "
            f"--max_seq_length={recipe.pairing.max_seq_length}, or documents "
            f"short ({sentences:.1f} sentences){hint}"
        )


def write_table(recipe: Recipe, unit: tuple[int, range]) -> PairCounts:
    """Pairs the segments of some documents, unless that was done before.

    The unit is the table's number and the numbers of its documents.
    """
    number, documents = unit
    path = work_dir.table_path(recipe, number)
    receipt = work_dir.receipt(recipe, path)
    if receipt is None:
        store = work_dir.token_store(recipe)
        pairs = instances.pair_segments(
            store.corpus,
            documents,
            rule=recipe.pairing,
            rng=recipe.rng("pairing", number),
            count_accesses=store.count_accesses,
        )
        paired = pairs.instances
        counts = PairCounts(
            instances=len(paired),
            random_next=int(paired["is_random"].sum()),
            lost_pieces=pairs.lost_tokens,
            kept_pieces=int(_lengths(paired).sum()),
        )
        table = instances.table_bytes(paired)
        atomic.write_bytes(path, table)
        crc32 = zlib.crc32(table)
        work_dir.finish(recipe, path, crc32=crc32, **counts._asdict())
        return counts
    return PairCounts(*(receipt[name] for name in PairCounts._fields))


def _lengths(pairs: np.ndarray) -> np.ndarray:
    """Returns the lengths of INSTANCE [N] with [CLS] and [SEP]: int64 [N]."""
    return pairs["a_length"].astype(np.int64) + pairs["b_length"] + 3


def _tables(recipe: Recipe, count: int) -> list[str]:
    return [work_dir.table_path(recipe, number) for number in range(count)]


# Masking and writing.


class Slice(NamedTuple):
    """A range of ranks of the global order, and the file of its records."""

    shard: str
    path: str  # The shard itself if it has one slice only.
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
        slices = []
        for n, (first, last) in enumerate(itertools.pairwise(bounds)):
            path = shard
            if count > 1:
                name = f"slice-{n:05d}-of-{os.path.basename(shard)}"
                path = work_dir.path_of(recipe, name)
            slices.append(Slice(shard, path, range(first, last), tables))
        result.append(slices)
    return result


def _write_shards(
    recipe: Recipe,
    pool: workers.Workers,
    shards: list[list[Slice]],
    bar: progress.PhaseBar,
) -> None:
    """Writes the shards that are not complete."""
    missing = []
    total = sum(len(x.ranks) for slices in shards for x in slices)
    with bar.phase("writing", total, "instances") as update:
        for slices in shards:
            if work_dir.receipt(recipe, slices[0].shard):
                update(sum(len(x.ranks) for x in slices), is_new=False)
            else:
                missing.append(slices)
        units = itertools.chain.from_iterable(missing)
        written = pool.map_on_disk(write_slice, units)
        for slices in missing:
            for unit in slices:
                next(written)
                update(len(unit.ranks))
            _join(recipe, slices)


def write_slice(recipe: Recipe, unit: Slice) -> None:
    """Writes the records of one slice, unless that was done before."""
    if work_dir.receipt(recipe, unit.path):
        return
    with records.ShardWriter(unit.path) as writer:
        for columns in _batches(recipe, unit):
            writer.write(records.encode(recipe.schema, columns))
    work_dir.finish(recipe, unit.path, records=writer.count)


def _join(recipe: Recipe, slices: list[Slice]) -> None:
    """Concatenates the slices of a shard.

    Concatenated TFRecord files are a TFRecord file, also if compressed.
    """
    shard = slices[0].shard
    if slices[0].path == shard:
        return
    with (
        atomic.replacing(shard) as temporary,
        tf.io.gfile.GFile(temporary, "wb") as file,
    ):
        for part in slices:
            with open(part.path, "rb") as source:
                shutil.copyfileobj(source, file, 1 << 24)
    count = 0
    for part in slices:
        receipt = work_dir.receipt(recipe, part.path)
        assert receipt is not None
        count += receipt["records"]
    work_dir.finish(recipe, shard, records=count)
    for part in slices:
        work_dir.discard(recipe, part.path)


def _batches(recipe: Recipe, unit: Slice) -> Iterator[dict[str, np.ndarray]]:
    """Yields the features of a slice's records, _BATCH_TOKENS at once."""
    selected = instances.read_ranks(
        work_dir.path_of(recipe, "index"),
        _tables(recipe, unit.tables),
        unit.ranks,
    )
    rng = recipe.rng("masking", unit.ranks.start)
    step = max(1, _BATCH_TOKENS // recipe.pairing.max_seq_length)
    if recipe.packing is None:
        for start in range(0, len(selected), step):
            yield _features(recipe, selected[start : start + step], rng)
        return
    lengths = _lengths(selected)
    rows = packing.pack(
        lengths,
        masking.prediction_counts(lengths, recipe.masking),
        recipe.packing,
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
            columns, rows[begin:end] - first, last - first, recipe.packing
        )


def _features(
    recipe: Recipe, batch: np.ndarray, rng: np.random.Generator
) -> dict[str, np.ndarray]:
    """Builds the features of a batch of instances, INSTANCE [N]."""
    assembled = instances.assemble(
        work_dir.token_store(recipe).take,
        batch,
        max_seq_length=recipe.pairing.max_seq_length,
        vocabulary=recipe.vocabulary,
    )
    input_ids, is_continuation = assembled.input_ids, None
    if recipe.words is not None:
        input_ids, is_continuation = white_space.unmarked(input_ids)
    masked = masking.mask(
        input_ids,
        assembled.is_candidate,
        assembled.lengths,
        rule=recipe.masking,
        vocabulary=recipe.vocabulary,
        is_continuation=is_continuation,
        rng=rng,
    )
    return {
        **masked._asdict(),
        "input_mask": assembled.input_mask,
        "segment_ids": assembled.segment_ids,
        "next_sentence_labels": batch["is_random"][:, None],
    }


# The manifest and the log.


def _manifest(
    recipe: Recipe,
    counts: dict[str, int],
    receipts: list[dict],
    words_path: str,
) -> manifest.Manifest:
    rows = sum(receipt["records"] for receipt in receipts)
    packed: manifest.Packing | None = None
    if recipe.packing is not None:
        full_rows = counts["kept_pieces"] / recipe.pairing.max_seq_length
        packed = {
            "predictions_per_row": recipe.packing.predictions_per_row,
            "instances_per_row": recipe.packing.instances_per_row,
            "packing_factor": counts["instances"] / rows,
            "efficiency": full_rows / rows,
            "efficiency_unpacked": full_rows / counts["instances"],
        }
    return manifest.Manifest(
        kind=recipe.schema.kind,
        max_seq_length=recipe.pairing.max_seq_length,
        max_predictions_per_seq=recipe.masking.max_predictions_per_seq,
        vocabulary={
            "file": os.path.basename(words_path),
            "size": len(recipe.vocabulary),
            "sha256": recipe.vocabulary.sha256,
        },
        tokenizer={
            switch: recipe.tokenizer.settings[switch]
            for switch in typing.get_args(manifest.Switch)
        },
        shards=tuple(
            manifest.Shard(
                file=os.path.basename(path),
                records=receipt["records"],
                bytes=receipt["bytes"],
            )
            for path, receipt in zip(recipe.output_files, receipts, strict=True)
        ),
        job=recipe.settings.to_json(),
        totals=dict(sorted(counts.items())),
        packing=packed,
    )


def log_totals(description: manifest.Manifest) -> None:
    """Logs what was read, what was dropped and why, and what was written."""
    counts = description.totals
    passes = counts["pieces"] * description.job["dupe_factor"]
    logging.info(
        "Read %d documents, %d sentences, %d tokens (%.2f %% unknown).",
        counts["documents"],
        counts["sentences"],
        counts["pieces"],
        100 * counts["unknown_pieces"] / counts["pieces"],
    )
    logging.info(
        "Dropped: %d sentences without tokens, %d bytes that are not UTF-8, "
        "%.2f %% of the tokens by truncation.",
        counts["sentences_without_pieces"],
        counts["invalid_bytes"],
        100 * counts["lost_pieces"] / passes,
    )
    if description.packing is not None:
        logging.info(
            "Packed %.2f instances a row: %.1f %% padding instead of %.1f %%.",
            description.packing["packing_factor"],
            100 - 100 * description.packing["efficiency"],
            100 - 100 * description.packing["efficiency_unpacked"],
        )
    logging.info(
        "Wrote %d total instances, %.1f %% with a random next sentence.",
        counts["instances"],
        100 * counts["random_next"] / counts["instances"],
    )


def _show_first_records(recipe: Recipe, unit: Slice) -> None:
    """Logs the first records of a slice, before all others are written."""
    columns = next(_batches(recipe, unit))
    tokens = recipe.vocabulary.tokens
    count = min(_EXAMPLES_SHOWN, len(columns["input_ids"]))
    logging.info(
        "The first %d records; 0*30 is 0, thirty times. Most tokens to predict "
        "are replaced by [MASK]; they are at masked_lm_positions, their ids "
        "are masked_lm_ids. next_sentence_labels is 1 if B is a random text.",
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
        for feature in recipe.schema.features:
            values = columns[feature.name][row].ravel().tolist()
            lines.append(f"{feature.name}: {_compact(values)}")
        logging.info("%s", "\n".join(lines))


def _compact(values: Iterable) -> str:
    """Joins numbers, 0 0 0 0 as 0*4."""
    result = []
    for value, run in itertools.groupby(values):
        count = len(list(run))
        short = [f"{value:g}"] * count
        result.extend([f"{value:g}*{count}"] if count > 3 else short)
    return " ".join(result)
