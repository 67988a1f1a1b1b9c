"""The entries of the catalogue that slow tests run on: one or two of each kind; cheap tests run on every entry."""

from __future__ import annotations

FIRST = (
    *("attention", "causal_attention", "column_sums", "convolution", "cross_entropy", "gpt3_block"),
    *("grouped_query_attention", "layernorm", "matmul", "matmul_chain", "multi_head_attention", "rmsnorm_matmul"),
    *("spherical_attention", "swiglu_mlp"),
)
