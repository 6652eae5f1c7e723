"""vLLM's connector over hetccl.kv: prefill on one engine, decode on another (docs/vllm.md)."""

from __future__ import annotations

from hetccl.vllm.connector import HetcclConnector

__all__ = ["HetcclConnector"]
