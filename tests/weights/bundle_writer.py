"""Writes indexes of TensorFlow checkpoints that say whatever a test wants."""

_POLYNOMIAL = 0x82F63B78
_DATA_TYPES = {"float32": 1, "string": 7, "int64": 9}


def index(entries: dict[str, bytes], header: bytes | None = None) -> bytes:
    """Makes a sorted table with valid checksums.

    Args:
      entries: name -> serialized description.
      header: the first entry's value; one data file if not given.
    """
    header = field(1, 1) if header is None else header
    rows = {b"": header} | {k.encode(): v for k, v in entries.items()}
    block = _block(sorted(rows.items()))
    content = _with_trailer(block)
    handle = varint(0) + varint(len(block))
    meta_at = len(content)
    meta = _block([])
    content += _with_trailer(meta)
    index_at = len(content)
    top = _block([(b"\xff", handle)])
    content += _with_trailer(top)
    footer = varint(meta_at) + varint(len(meta))
    footer += varint(index_at) + varint(len(top))
    magic = 0xDB4775248B80FB57.to_bytes(8, "little")
    return content + footer.ljust(40, b"\0") + magic


def entry(shape, size: int, dtype: str = "float32", offset: int = 0) -> bytes:
    """Describes one tensor."""
    dims = b"".join(message(2, field(1, n)) for n in shape)
    return (
        field(1, _DATA_TYPES[dtype])
        + message(2, dims)
        + field(4, offset)
        + field(5, size)
    )


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


def _with_trailer(block: bytes) -> bytes:
    crc = _crc32c(block + b"\0")
    masked = ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF
    return block + b"\0" + masked.to_bytes(4, "little")


def _crc32c(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (_POLYNOMIAL if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF
