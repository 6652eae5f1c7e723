"""The wire order: packed cells as [layer][K|V][token][head][dim], in one declared type."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

from hetccl.kv.description import DTYPES, Description
from hetccl.kv.errors import KvError

ENCODINGS = ("int8", "e4m3")
_ALIGNMENT = 16  # of a segment in staging, bytes
_SCALE_BYTES = 4


@dataclasses.dataclass(frozen=True)
class Segment:
    """Cells of one part (0: K or the latent, 1: V) of a layer: tokens and heads are [first, last),
    tokens of the request and heads of the model."""

    layer: int
    part: int
    first_token: int
    last_token: int
    first_head: int
    last_head: int

    @property
    def n_tokens(self) -> int:
        """The number of tokens."""
        return self.last_token - self.first_token

    @property
    def n_heads(self) -> int:
        """The number of heads."""
        return self.last_head - self.first_head

    @property
    def n_cells(self) -> int:
        """The number of pairs of a token and a head."""
        return self.n_tokens * self.n_heads


@dataclasses.dataclass(frozen=True)
class Wire:
    """The form of packed cells. With an encoding, a segment is a float32 scale of each token and
    head, then a code of a byte for each element; without, it is elements of `dtype`."""

    dtype: str
    encoding: str
    head_sizes: tuple[int, ...]

    def bytes_of(self, segment: Segment) -> int:
        """Returns the bytes of a segment in staging, a multiple of 16."""
        return -(-segment.n_cells * self.cell_bytes(segment.part) // _ALIGNMENT) * _ALIGNMENT

    def cell_bytes(self, part: int) -> int:
        """Returns the bytes of one token of one head."""
        size = self.head_sizes[part]
        return size + _SCALE_BYTES if self.encoding else size * DTYPES[self.dtype]


def choose_wire(source: Description, target: Description, encoding: str = "") -> Wire:
    """Returns the wire between two ends: the shorter of both types, and of equally long ones the
    target's. Raises KvError for encodings that do not exist, and for those of fp8 caches."""
    if encoding and encoding not in ENCODINGS:
        raise KvError(f"encoding is {encoding!r}: it must be empty or one of {ENCODINGS}")
    if encoding and min(source.item_bytes, target.item_bytes) == 1:
        raise KvError(f"encoding is {encoding!r}, but {source.name} holds {source.dtype} already")
    is_shorter = source.item_bytes < target.item_bytes
    return Wire(source.dtype if is_shorter else target.dtype, encoding, target.head_sizes)


def cut(segments: Sequence[Segment], wire: Wire, most_bytes: int) -> Iterator[list[Segment]]:
    """Yields chunks of at most `most_bytes` in the wire order; segments are split between tokens.

    Raises KvError where one token of a segment does not fit.
    """
    chunk: list[Segment] = []
    left = most_bytes
    for segment in segments:
        rest = segment
        while rest.n_tokens:
            token_bytes = rest.n_heads * wire.cell_bytes(rest.part)
            fit = min(rest.n_tokens, left // _ALIGNMENT * _ALIGNMENT // token_bytes)
            if not fit and not chunk:
                raise KvError(
                    f"layer {rest.layer}: a token takes {token_bytes} bytes, and a staging slot "
                    f"has {most_bytes}: make slots larger"
                )
            if fit:
                middle = rest.first_token + fit
                taken = dataclasses.replace(rest, last_token=middle)
                rest = dataclasses.replace(rest, first_token=middle)
                chunk.append(taken)
                left -= wire.bytes_of(taken)
            if rest.n_tokens:
                yield chunk
                chunk, left = [], most_bytes
    if chunk:
        yield chunk
