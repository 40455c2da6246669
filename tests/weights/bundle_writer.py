"""Writes indexes of TensorFlow checkpoints with arbitrary contents."""

_POLYNOMIAL = 0x82F63B78
_DATA_TYPES = {"float32": 1, "string": 7, "int64": 9}


def index(
    entries: dict[str, bytes],
    header: bytes | None = None,
    *,
    is_compressed: bool = False,
) -> bytes:
    """Returns a sorted table with valid checksums.

    Args:
      entries: name -> serialized description.
      header: the value of the first entry; None means one data file.
      is_compressed: whether blocks are snappy streams, as TensorFlow 1 wrote
        them.
    """
    header = field(1, 1) if header is None else header
    rows = {b"": header} | {k.encode(): v for k, v in entries.items()}
    content, handles = b"", []
    for block in (sorted(rows.items()), []):  # The data and the meta block.
        handle, stored = _stored(_block(block), len(content), is_compressed)
        handles.append(handle)
        content += stored
    top = _block([(b"\xff", handles[0])])
    handle, stored = _stored(top, len(content), is_compressed)
    magic = 0xDB4775248B80FB57.to_bytes(8, "little")
    footer = (handles[1] + handle).ljust(40, b"\0")
    return content + stored + footer + magic


def entry(shape, size: int, dtype: str = "float32", offset: int = 0) -> bytes:
    """Describes one tensor."""
    dims = b"".join(message(2, field(1, n)) for n in shape)
    return (
        field(1, _DATA_TYPES[dtype])
        + message(2, dims)
        + field(4, offset)
        + field(5, size)
    )


def with_checksum(description: bytes, data: bytes) -> bytes:
    """Adds the checksum of a tensor's bytes to its description."""
    checksum = masked_crc32c(data).to_bytes(4, "little")
    return description + bytes([6 << 3 | 5]) + checksum


def field(number: int, value: int) -> bytes:
    """Encodes a number."""
    return varint(number << 3) + varint(value & (2**64 - 1))


def message(number: int, value: bytes) -> bytes:
    """Encodes bytes."""
    return varint(number << 3 | 2) + varint(len(value)) + value


def varint(value: int) -> bytes:
    """Encodes a number in groups of seven bits."""
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


def _block(rows: list) -> bytes:
    body = b""
    for key, value in rows:
        body += varint(0) + varint(len(key)) + varint(len(value)) + key + value
    return body + (0).to_bytes(4, "little") + (1).to_bytes(4, "little")


def _stored(
    block: bytes, offset: int, is_compressed: bool
) -> tuple[bytes, bytes]:
    """Returns a block's handle and its bytes with type and checksum."""
    if is_compressed:
        block = _snappy(block)
    handle = varint(offset) + varint(len(block))
    block += bytes([is_compressed])
    return handle, block + masked_crc32c(block).to_bytes(4, "little")


def _snappy(data: bytes) -> bytes:
    """Returns a snappy stream that consists of literals only."""
    out = varint(len(data))
    for at in range(0, len(data), 60):
        literal = data[at : at + 60]
        out += bytes([len(literal) - 1 << 2]) + literal
    return out


def masked_crc32c(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (_POLYNOMIAL if crc & 1 else 0)
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF
