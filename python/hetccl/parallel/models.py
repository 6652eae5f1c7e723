"""Models as the planner sees them: computation, memory and messages of a layer for one sample."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_MOST_FILE_BYTES = 1 << 20
MOST_LAYERS = 4096
_MOST = 1e30  # of work and bytes: floats hold all costs of so many


class ParallelError(ValueError):
    """A plan cannot be made or run; the text names the argument, the reason and the remedy."""


@dataclasses.dataclass(frozen=True)
class Model:
    """A model of equal layers between an embedding and a head, which computes the loss.

    A sample is one sequence. `layer_flops`, `embedding_flops` and `head_flops` are those of a
    sample's forward pass; a backward pass takes twice as many, and three times as many with
    `recompute`, which keeps only what goes into a layer. `layer_activations` are the bytes
    that a layer keeps of a sample for its backward pass without tensor parallelism,
    `head_activations` those of the head. `boundary` is the bytes that a layer hands to the next
    one. `type_bytes` is the size of an element of weights, gradients and activations.
    `split_backward` is how many times as long as a whole backward pass one takes that is cut in
    two, as the zero-bubble schedule does: torch walks the graph twice.
    """

    name: str
    layers: int
    hidden: int
    sequence: int
    layer_parameters: float
    layer_flops: float
    layer_activations: float
    boundary: float
    embedding_parameters: float = 0.0
    embedding_flops: float = 0.0
    head_parameters: float = 0.0
    head_flops: float = 0.0
    head_activations: float = 0.0
    heads: int = 0
    type_bytes: int = 2
    recompute: bool = False
    split_backward: float = 1.25

    @property
    def backward(self) -> int:
        """How many forward passes a backward pass costs."""
        return 3 if self.recompute else 2

    @property
    def parameters(self) -> float:
        """All of them; the embedding's and the head's weights are two tensors."""
        ends = self.embedding_parameters + self.head_parameters
        return self.layers * self.layer_parameters + ends

    def flops_of(self, first: int, end: int) -> float:
        """The FLOPs of a sample's forward pass through layers `first` to `end` - 1, with the ends
        of the model that lie there."""
        count = (end - first) * self.layer_flops
        count += self.embedding_flops if first == 0 else 0.0
        return count + (self.head_flops if end == self.layers else 0.0)

    def parameters_of(self, first: int, end: int) -> float:
        """The parameters of layers `first` to `end` - 1, with the ends that lie there."""
        count = (end - first) * self.layer_parameters
        count += self.embedding_parameters if first == 0 else 0.0
        return count + (self.head_parameters if end == self.layers else 0.0)

    def activations_of(self, first: int, end: int, tensor: int) -> float:
        """Bytes that a rank keeps of a sample for the backward pass. Tensor parallelism divides
        24 of 34 parts (Korthikanti et al., "Reducing Activation Recomputation", table 2)."""
        of_layer = self.layer_activations * (10 + 24 / tensor) / 34
        kept = (end - first) * (self.boundary if self.recompute else of_layer)
        return kept + (self.head_activations / tensor if end == self.layers else 0.0)


def _transformer(
    name: str, layers: int, hidden: int, heads: int, vocabulary: int, sequence: int,
    groups: int = 0, intermediate: int = 0, type_bytes: int = 2,
) -> Model:  # fmt: skip
    """A GPT where `groups` (heads of keys and values) is 0, else a LLaMA."""
    if groups:
        weights = hidden * hidden * (2 + 2 * groups / heads) + 3 * hidden * intermediate
        weights += 2 * hidden
    else:
        weights = 12.0 * hidden * hidden + 13 * hidden
    of_table = float(vocabulary * hidden)
    element = type_bytes / 2
    return Model(
        name, layers, hidden, sequence,
        layer_parameters=weights,
        layer_flops=2 * weights * sequence + 4.0 * sequence * sequence * hidden,
        layer_activations=34.0 * sequence * hidden * element,  # attention keeps no square
        boundary=float(sequence * hidden * type_bytes),
        embedding_parameters=of_table + (0 if groups else sequence * hidden),
        head_parameters=of_table + hidden,
        head_flops=2 * of_table * sequence,
        head_activations=float(sequence * vocabulary * (4 + type_bytes)),  # float32 probabilities
        heads=heads, type_bytes=type_bytes,
    )  # fmt: skip


PRESETS: Mapping[str, Model] = {
    model.name: model
    for model in (
        _transformer("gpt-125m", 12, 768, 12, 50257, 1024),
        _transformer("gpt-350m", 24, 1024, 16, 50257, 1024),
        _transformer("gpt-1.3b", 24, 2048, 16, 50257, 2048),
        _transformer("llama-1b", 16, 2048, 32, 128256, 8192, 8, 8192),
        _transformer("llama-3b", 28, 3072, 24, 128256, 8192, 8, 8192),
        _transformer("llama-8b", 32, 4096, 32, 128256, 8192, 8, 14336),
        _transformer("llama-70b", 80, 8192, 64, 128256, 8192, 8, 28672),
        _transformer("qwen2-7b", 28, 3584, 28, 152064, 8192, 4, 18944),
    )
}

_SHAPE = {"layers": MOST_LAYERS, "hidden": 1 << 20, "heads": 1 << 16, "vocabulary": 1 << 24,
          "sequence": 1 << 24, "groups": 1 << 16, "intermediate": 1 << 24,
          "type_bytes": 8}  # fmt: skip
_NEEDED = ("layers", "hidden", "heads", "vocabulary", "sequence")
_AMOUNTS = (
    "layer_parameters", "layer_flops", "layer_activations", "boundary", "embedding_parameters",
    "embedding_flops", "head_parameters", "head_flops", "head_activations",
    "split_backward",
)  # fmt: skip


def model_of(values: Any, origin: str = "model") -> Model:
    """The model of a JSON object. Raises ParallelError, which names `origin` and the field.

    `layers`, `hidden`, `heads`, `vocabulary` and `sequence` must be there. `groups` and
    `intermediate` make a LLaMA of it. Fields of `Model` replace what follows from these.
    """
    if not isinstance(values, dict):
        raise ParallelError(f"{origin}: it holds no object; give {', '.join(_NEEDED)}")
    known = {*_SHAPE, *_AMOUNTS, "name"}
    if unknown := sorted(set(values) - known):
        raise ParallelError(
            f"{origin}: there is no field {str(unknown[0])[:40]!r}; there are "
            f"{', '.join(sorted(known))}"
        )
    if missing := [field for field in _NEEDED if field not in values]:
        raise ParallelError(f"{origin}: the field {missing[0]!r} is missing")
    shape = {field: _whole(origin, field, values[field]) for field in _SHAPE if field in values}
    amounts: dict[str, Any] = {field: _amount(origin, field, values[field]) for field in _AMOUNTS
               if field in values}  # fmt: skip
    name = values.get("name", origin)
    if not isinstance(name, str) or len(name) > 200:
        raise ParallelError(f"{origin}: the field 'name' is no text of at most 200 characters")
    if shape["hidden"] % shape["heads"]:
        raise ParallelError(
            f"{origin}: heads={shape['heads']} does not divide hidden={shape['hidden']}"
        )
    if ("groups" in shape) != ("intermediate" in shape):
        raise ParallelError(f"{origin}: give groups and intermediate together, or neither")
    return dataclasses.replace(_transformer(name, **shape), **amounts)


def _whole(origin: str, field: str, value: object) -> int:
    most = _SHAPE[field]
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
        raise ParallelError(
            f"{origin}: {field}={str(value)[:40]} must be a whole number from 1 to {most}"
        )
    return value


def _amount(origin: str, field: str, value: object) -> float:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not 0 <= value <= _MOST:  # type: ignore[operator]
        raise ParallelError(f"{origin}: {field}={str(value)[:40]} must be a number from 0 to 1e30")
    if value == 0 and field in ("layer_parameters", "layer_flops", "boundary"):
        raise ParallelError(f"{origin}: {field} is 0: a layer computes, and hands something on")
    if field == "split_backward" and value < 1:  # type: ignore[operator]
        raise ParallelError(
            f"{origin}: {field}={value}: a backward pass in two parts saves no time"
        )
    assert math.isfinite(float(value))  # type: ignore[arg-type]
    return float(value)  # type: ignore[arg-type]


def read_model(text: str) -> Model:
    """A preset by its name, or the model that a JSON file describes. Raises ParallelError."""
    if text in PRESETS:
        return PRESETS[text]
    path = Path(text)
    if path.suffix != ".json":
        raise ParallelError(
            f"there is no model {text!r}: give {', '.join(PRESETS)}, or a file that ends in .json"
        )
    try:
        with path.open("rb") as file:
            content = file.read(_MOST_FILE_BYTES + 1)
        if len(content) > _MOST_FILE_BYTES:
            raise ParallelError(f"{text}: a model's file has at most {_MOST_FILE_BYTES} bytes")
        return model_of(json.loads(content), text)
    except OSError as error:
        raise ParallelError(f"{text}: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        if isinstance(error, ParallelError):
            raise
        raise ParallelError(f"{text}: it is no JSON: {error}") from None
