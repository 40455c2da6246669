"""Batches of examples of similar length, with little padding.

    endless order   epoch 0 permuted, epoch 1 permuted, ...
    group           up to 50 successive batches of it, sorted by length
    batch           a slice of its group; the batches of a group are permuted

Every batch is padded to the shortest permitted length that holds its longest
row. The order is a pure function of (seed, lengths, batch size) and can be
entered at any batch without replay. Evaluation has every example once: row i of
a batch is example `example_index`[i], and `is_real_example` is 0 for the copies
that fill up the last batch; both are int32 [B].

`train_batches` and `OrderedBatches.dataset` make datasets for training.feed,
which chooses first_batch, part and num_parts.
"""

import dataclasses
import functools
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from data import permutations
from data.features import Features
from foundation import errors

if TYPE_CHECKING:
    import tensorflow as tf

_GROUP_BATCHES = 50
_FOREVER = 2**62
_AHEAD = 4  # Batches that are made in advance.
FINE, COARSE, ONE = "fine", "coarse", "one"


def permitted_lengths(max_seq_length: int, step: str = FINE) -> list[int]:
    """Returns the ascending lengths that batches may have.

    Args:
      max_seq_length: the longest.
      step: FINE for multiples of 8; COARSE for some eighths of the longest, if
        the model is compiled for each length; ONE for the longest only.
    """
    if step == ONE:
        return [max_seq_length]
    if step == COARSE:
        eighths = [max_seq_length * n // 8 for n in (1, 2, 3, 4, 6)]
        rounded = {-(-length // 8) * 8 for length in eighths}
        shorter = sorted(n for n in rounded if 0 < n < max_seq_length)
        return [*shorter, max_seq_length]
    return [*range(8, max_seq_length, 8), max_seq_length]


def train_batches(
    features: Features,
    *,
    batch_size: int,
    seed: int,
    lengths: Sequence[int],
    first_batch: int = 0,
    part: int = 0,
    num_parts: int = 1,
) -> "tf.data.Dataset":
    """Returns endless batches, every example once per epoch.

    Args:
      features: the examples.
      batch_size: examples of the global batch.
      seed: keys the order.
      lengths: the permitted ones.
      first_batch: number of batches to skip, at no cost.
      part, num_parts: see pipelines.train_batches.

    Returns:
      A dict of [batch_size / num_parts, ...]; the length of sequences is
      static only where one is permitted.
    """
    order = Order(features.sizes, batch_size=batch_size, seed=seed)
    return _batches(
        range(first_batch, _FOREVER),
        lambda number: _cut(features, order.batch(int(number)), lengths),
        features,
        lengths,
        (batch_size, part, num_parts),
    )


class Order:
    """The examples of each batch of training."""

    def __init__(self, sizes: np.ndarray, *, batch_size: int, seed: int):
        """`sizes` int [N] are Features.sizes, by which groups are sorted."""
        if not len(sizes):
            raise errors.InputError("there are no examples to train on")
        self._sizes = sizes
        self._batch_size = batch_size
        self._seed = seed
        # At most an epoch, because each epoch is sorted by itself.
        epoch = -(-len(sizes) // batch_size)
        self._batches = min(_GROUP_BATCHES, epoch)
        self._group = functools.lru_cache(maxsize=2)(self._make_group)
        self._epoch = functools.lru_cache(maxsize=2)(
            functools.partial(permutations.permutation, len(sizes), seed, 0)
        )

    def batch(self, number: int) -> np.ndarray:
        """Returns the rows of the number-th batch, counted from 0."""
        group, index = divmod(number, self._batches)
        return self._group(group)[index]

    def _make_group(self, number: int) -> np.ndarray:
        """Returns int64 [batches, batch size]."""
        size = self._batches * self._batch_size
        positions = np.arange(number * size, (number + 1) * size)
        epochs, positions = np.divmod(positions, len(self._sizes))
        rows = np.concatenate(
            [
                self._epoch(int(epoch))[positions[epochs == epoch]]
                for epoch in np.unique(epochs)
            ]
        )
        # Epoch by epoch; sorted together, the same example of two epochs would
        # be in one batch.
        order = np.lexsort((self._sizes[rows], epochs))
        batches = rows[order].reshape(self._batches, self._batch_size)
        shuffled = permutations.permutation(len(batches), self._seed, 1, number)
        first = epochs[:: self._batch_size][shuffled]
        return batches[shuffled[np.argsort(first, kind="stable")]]


def _cut(features, rows, lengths) -> dict[str, np.ndarray]:
    longest = int(features.lengths[rows].max())
    length = next((n for n in lengths if n >= longest), None)
    if length is None:
        raise ValueError(f"{longest} tokens, but at most {lengths[-1]} fit")
    count = None
    if features.window_splits is not None and len(lengths) == 1:
        count = int(features.counts.max())  # All batches have one shape.
    return features.batch(rows, length, count)


def _batches(
    numbers: range,
    make: Callable[[int], dict[str, np.ndarray]],
    features: Features,
    lengths: Sequence[int],
    parts: tuple[int, int, int],
) -> "tf.data.Dataset":
    """Returns a worker's part of the batches with these numbers."""
    import tensorflow as tf

    mine = permutations.rows_of_part(*parts)
    example = make(0)
    names = sorted(example)
    specs = _specs(example, features, lengths)
    # TensorFlow keeps `convert` as long as the process lives. So `convert` only
    # holds a weak reference to what has the features, which _MAKERS keeps.
    maker = weakref.ref(make)
    # Zeros of the same shapes that take no memory.
    blank = [
        np.broadcast_to(np.zeros((), x.dtype), x.shape)
        for x in (example[name][mine] for name in names)
    ]

    def convert(number):
        make = maker()
        if make is None:
            return blank  # Made in advance for a deleted iterator.
        batch = make(number)
        return [batch[name][mine] for name in names]

    @tf.autograph.experimental.do_not_convert  # Converting takes 20 ms.
    def load(number):
        types = [example[name].dtype for name in names]
        values = tf.numpy_function(convert, [number], types, stateful=False)
        result = {}
        for name, value in zip(names, values, strict=True):
            shape = [mine.stop - mine.start, *specs[name].shape[1:]]
            result[name] = tf.ensure_shape(value, shape)
        return result

    # In order, or the batch of a step would depend on the machine's load.
    dataset = tf.data.Dataset.range(numbers.start, numbers.stop)
    batches = dataset.map(load, num_parallel_calls=2, deterministic=True)
    batches = batches.prefetch(_AHEAD)
    _MAKERS[batches] = make
    return batches


# Dataset -> what makes its batches and lives as long as the dataset: others
# that are made of a dataset, and iterators, keep it.
_MAKERS: weakref.WeakKeyDictionary["tf.data.Dataset", Callable] = (
    weakref.WeakKeyDictionary()
)


class OrderedBatches:
    """The batches of a prediction: every example once, the longest first.

    The batches have no labels, which are compared on the host. So sets with and
    without labels compile to the same program.

    One device takes them as arrays; a dataset is for several. TensorFlow keeps
    some memory of every dataset as long as the process lives, and a stream of
    predictions has a set for every block. See training.feed.FiniteBatches.

    Attributes:
      element_spec: the specification of the arrays; the length of sequences is
        static only where one is permitted.
    """

    def __init__(
        self, features: Features, *, batch_size: int, lengths: Sequence[int]
    ):
        """Takes N > 0 examples and the permitted lengths."""
        ragged = {k: x for k, x in features.ragged.items() if k != "label_ids"}
        self._features = dataclasses.replace(features, dense={}, ragged=ragged)
        self._batch_size = batch_size
        self._lengths = lengths
        self._order = np.argsort(-features.sizes, kind="stable")
        self._numbers = range(-(-len(self._order) // batch_size))
        self.element_spec = _specs(self._make(0), self._features, lengths)

    def arrays(self) -> Iterator[dict[str, np.ndarray]]:
        """Yields dicts of arrays [batch size, ...]."""
        return map(self._make, self._numbers)

    def dataset(
        self, *, first_batch: int, part: int, num_parts: int
    ) -> "tf.data.Dataset":
        """Returns a worker's part of the batches; see train_batches."""
        del first_batch  # A prediction always starts with the first.
        return _batches(
            self._numbers,
            self._make,
            self._features,
            self._lengths,
            (self._batch_size, part, num_parts),
        )

    def _make(self, number: int) -> dict[str, np.ndarray]:
        size = self._batch_size
        rows = self._order[number * size : (number + 1) * size]
        real = len(rows)
        rows = np.concatenate([rows, np.repeat(rows[:1], size - real)])
        return _cut(self._features, rows, self._lengths) | {
            "example_index": rows.astype(np.int32),
            "is_real_example": (np.arange(size) < real).astype(np.int32),
        }


def _specs(
    example: Mapping[str, np.ndarray],
    features: Features,
    lengths: Sequence[int],
) -> "dict[str, tf.TensorSpec]":
    """Returns what all batches have in common with an example of them.

    Where the length is open, so is the number of rows: sets of different
    batches are predicted by one graph.
    """
    import tensorflow as tf

    static = lengths[0] if len(lengths) == 1 else None
    windows = features.window_splits is not None and static is None
    shape = example["input_mask"].shape  # [B, S] or [B, K, S]
    rows = None if static is None else shape[0]
    first = [rows, *([None] if windows else shape[1:-1]), static]
    return {
        name: tf.TensorSpec(
            [*first, *x.shape[len(shape) :]]
            if name in ("input_mask", *features.ragged)
            else [rows, *x.shape[1:]],
            x.dtype,
        )
        for name, x in example.items()
    }
