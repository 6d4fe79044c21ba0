"""Settings of tiny models of several families, as their config.json would say them."""

from __future__ import annotations

from typing import Any

FAMILIES: dict[str, dict[str, Any]] = {
    "llama": {},
    "qwen3": {},
    "qwen3_moe": {
        "num_experts": 4,
        "num_experts_per_tok": 2,
        "decoder_sparse_step": 1,
        "mlp_only_layers": [],
        "moe_intermediate_size": 32,
        "norm_topk_prob": True,
    },
    "gemma2": {
        "attn_logit_softcapping": 50.0,
        "final_logit_softcapping": 30.0,
        "query_pre_attn_scalar": 16,
    },
    "deepseek_v3": {
        "q_lora_rank": None,
        "kv_lora_rank": 16,
        "qk_rope_head_dim": 8,
        "qk_nope_head_dim": 8,
        "v_head_dim": 16,
        "n_routed_experts": None,
        "first_k_dense_replace": 3,
        "moe_intermediate_size": 32,
        "num_key_value_heads": 4,
    },
    "gemma3_text": {
        "sliding_window": 8,
        "sliding_window_pattern": 3,
        "rope_local_base_freq": 10000.0,
        "query_pre_attn_scalar": 16,
    },
    "gpt_oss": {
        "num_local_experts": 4,
        "num_experts_per_tok": 2,
        "sliding_window": 8,
        "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
    },
    "mamba2": {
        "num_heads": 4,
        "head_dim": 32,
        "state_size": 8,
        "layer_norm_epsilon": 1e-5,
        "conv_kernel": 4,
        "n_groups": 1,
        "use_bias": False,
        "use_conv_bias": True,
        "time_step_limit": [0.0, 100.0],
        "time_step_rank": 4,
    },
    "granitemoehybrid": {
        "attention_bias": False,
        "embedding_multiplier": 1.0,
        "attention_multiplier": 0.25,
        "logits_scaling": 1.0,
        "residual_multiplier": 1.0,
        "layer_types": ["mamba", "attention", "mamba"],
        "mamba_n_heads": 4,
        "mamba_d_head": 32,
        "mamba_proj_bias": False,
        "mamba_d_state": 8,
        "mamba_d_conv": 4,
        "mamba_n_groups": 1,
        "mamba_conv_bias": True,
        "shared_intermediate_size": 64,
    },
    "falcon_h1": {
        "mamba_d_conv": 4,
        "mamba_d_head": 32,
        "mamba_d_ssm": 64,
        "mamba_d_state": 8,
        "mamba_n_heads": 2,
        "mamba_n_groups": 1,
        "mamba_chunk_size": 16,
        "mamba_proj_bias": False,
        "mamba_expand": 2,
        "attention_bias": False,
        "mlp_bias": False,
    },
}

TOGETHER = ("llama", "qwen3", "qwen3_moe")
"""Families whose rows are decoded as one batch."""

POOLED_ALONE = ("gemma2", "deepseek_v3")
"""Families with plain caches that do their own arithmetic on the keys."""

OWN_STATE = ("gemma3_text", "gpt_oss", "mamba2", "granitemoehybrid", "falcon_h1")
"""Families with windows or recurrent state: one row at a time."""
