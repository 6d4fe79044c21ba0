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
    "gemma4_text": {
        "num_hidden_layers": 4,
        "global_head_dim": 16,
        "vocab_size_per_layer_input": 320,
        "hidden_size_per_layer_input": 16,
        "num_kv_shared_layers": 2,
        "sliding_window": 8,
        "layer_types": ["sliding_attention", "full_attention"] * 2,
    },
    "gemma3n": {
        "text_config": {
            "model_type": "gemma3n_text",
            "hidden_size": 64,
            "num_hidden_layers": 4,
            "intermediate_size": [128] * 4,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "head_dim": 16,
            "rms_norm_eps": 1e-6,
            "vocab_size": 320,
            "num_kv_shared_layers": 2,
            "vocab_size_per_layer_input": 320,
            "sliding_window": 8,
            "max_position_embeddings": 2048,
            "rope_local_base_freq": 10000.0,
            "rope_theta": 100000.0,
            "final_logit_softcapping": 30.0,
            "layer_types": ["sliding_attention", "full_attention"] * 2,
            "activation_sparsity_pattern": [0.0] * 4,
            "hidden_size_per_layer_input": 16,
            "altup_num_inputs": 2,
            "altup_coef_clip": 120.0,
            "altup_correct_scale": True,
            "altup_active_idx": 0,
            "laurel_rank": 8,
        },
    },
    "cohere2": {
        "num_hidden_layers": 4,
        "sliding_window": 8,
        "sliding_window_pattern": 2,
    },
    "qwen3_next": {
        "linear_num_value_heads": 4,
        "linear_num_key_heads": 2,
        "linear_key_head_dim": 32,
        "linear_value_head_dim": 16,
        "linear_conv_kernel_dim": 4,
        "num_experts": 4,
        "num_experts_per_tok": 2,
        "decoder_sparse_step": 1,
        "shared_expert_intermediate_size": 32,
        "mlp_only_layers": [],
        "moe_intermediate_size": 32,
        "partial_rotary_factor": 0.5,
        "norm_topk_prob": True,
        "full_attention_interval": 3,
    },
    "lfm2": {
        "norm_eps": 1e-5,
        "conv_bias": False,
        "conv_L_cache": 3,
        "block_dim": 64,
        "block_multiple_of": 16,
        "block_ffn_dim_multiplier": 1.0,
        "block_auto_adjust_ff_dim": False,
        "layer_types": ["conv", "full_attention", "conv"],
    },
    "llama4": {
        "text_config": {
            "model_type": "llama4_text",
            "attention_bias": False,
            "attention_chunk_size": 8,
            "head_dim": 16,
            "hidden_size": 64,
            "interleave_moe_layer_step": 2,
            "intermediate_size": 64,
            "intermediate_size_mlp": 128,
            "max_position_embeddings": 2048,
            "num_attention_heads": 4,
            "num_experts_per_tok": 1,
            "num_hidden_layers": 4,
            "num_key_value_heads": 2,
            "num_local_experts": 4,
            "rms_norm_eps": 1e-5,
            "rope_scaling": None,
            "rope_theta": 10000.0,
            "use_qk_norm": True,
            "vocab_size": 320,
        },
    },
}

TOGETHER = (
    "llama",
    "qwen3",
    "qwen3_moe",
    "gemma3_text",
    "gemma3n",
    "cohere2",
    "gpt_oss",
    "mamba2",
    "falcon_h1",
    "granitemoehybrid",
    "qwen3_next",
    "lfm2",
)
"""Families whose rows are decoded as one batch."""

ALONE = ("gemma2", "gemma4_text", "deepseek_v3", "llama4")
"""One row at a time: they do their own arithmetic on the keys, hand one layer's keys to
another, or reckon with the length of a chunked cache."""

READ_TOGETHER = ("llama", "qwen3", "qwen3_moe")
"""Families whose prompts are read as one batch: all pooled, rows decoded together."""

ALL_POOLED = ("llama", "qwen3", "qwen3_moe", "gemma2", "deepseek_v3")
"""Families with nothing but plain KV caches."""

WINDOWS = ("gemma3_text", "gemma3n", "gemma4_text", "cohere2", "gpt_oss", "llama4")
STATE = ("mamba2", "falcon_h1", "granitemoehybrid", "qwen3_next", "lfm2")
"""Families with sliding or chunked windows, and with recurrent state."""

OWN_STATE = WINDOWS + STATE
