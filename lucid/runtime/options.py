"""onnxruntime's session options, with checked names: onnxruntime itself silently ignores an unknown key."""

from __future__ import annotations

import os
from collections.abc import Mapping
from difflib import get_close_matches

import onnxruntime

from lucid.core.number_ranges import is_whole
from lucid.files.utf8_paths import utf8_path

MOST_THREADS = 4096
"""More than processors have: onnxruntime would start them all, and run none of them."""

# The keys of onnxruntime's config entries (its header onnxruntime_session_options_config_keys.h, 1.31) that are useful
# for running a model. Those that `Session` has an option for are in NAMED.
KEYS = frozenset(
    {
        "ep.context_embed_mode",
        "ep.context_enable",
        "ep.context_file_path",
        "ep.context_model_external_initializers_file_name",
        "mlas.disable_kleidiai",
        "mlas.use_lut_gemm",
        "optimization.disable_specified_optimizers",
        "optimization.enable_cast_chain_elimination",
        "optimization.enable_gelu_approximation",
        "optimization.minimal_build_optimizations",
        "session.debug_layout_transformation",
        "session.disable_aot_function_inlining",
        "session.disable_cpu_ep_fallback",
        "session.disable_double_qdq_remover",
        "session.disable_model_compile",
        "session.disable_qdq_constant_folding",
        "session.disable_quant_qdq",
        "session.dynamic_block_base",
        "session.enable_dq_matmulnbits_fusion",
        "session.enable_quant_qdq_cleanup",
        "session.force_spinning_stop",
        "session.graph_optimizations_loop_level",
        "session.inter_op.allow_spinning",
        "session.intra_op.spin_backoff_max",
        "session.intra_op.spin_duration_us",
        "session.intra_op_thread_affinities",
        "session.load_model_format",
        "session.model_external_initializers_file_folder_path",
        "session.optimized_model_external_initializers_file_name",
        "session.optimized_model_external_initializers_min_size_in_bytes",
        "session.qdq_matmulnbits_accuracy_level",
        "session.qdq_matmulnbits_block_size",
        "session.qdqisint8allowed",
        "session.record_ep_graph_assignment_info",
        "session.save_external_prepacked_constant_initializers",
        "session.save_model_format",
        "session.strict_shape_type_inference",
        "session.use_device_allocator_for_initializers",
        "session.use_env_allocators",
        "session.use_ort_model_bytes_directly",
        "session.use_ort_model_bytes_for_initializers",
        "session.x64quantprecision",
    }
)
NAMED = {
    "session.disable_prepacking": "prepack",
    "session.intra_op.allow_spinning": "spinning",
    "session.set_denormal_as_zero": "flush_denormals",
}


def session_options(
    *,
    threads: int | None,
    spinning: bool,
    memory_arena: bool,
    memory_pattern: bool,
    prepack: bool,
    optimize: bool,
    flush_denormals: bool,
    config: Mapping[str, str] | None,
    profile: str | os.PathLike[str] | None = None,
) -> onnxruntime.SessionOptions:
    """The options of a session; `Session` describes each.

    Raises:
        ValueError: for threads below 1, an unknown config key, or a config key for which `Session` has an option.
        TypeError: for a config value that is not text.
    """
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
    options.add_session_config_entry("session.intra_op.allow_spinning", str(int(spinning)))
    options.add_session_config_entry("session.disable_prepacking", str(int(not prepack)))
    if flush_denormals:
        options.add_session_config_entry("session.set_denormal_as_zero", "1")
    options.enable_cpu_mem_arena = memory_arena
    options.enable_mem_pattern = memory_pattern
    if threads is not None:
        check_threads("Session", threads)
        options.intra_op_num_threads = int(threads)
    if not optimize:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    if profile is not None:
        options.enable_profiling = True
        options.profile_file_prefix = utf8_path(profile)
    for key, value in (config or {}).items():
        _check(key, value)
        options.add_session_config_entry(key, value)
    return options


def check_threads(where: str, threads: object) -> None:
    """Raise ValueError for an invalid number of threads."""
    if not is_whole(threads) or not 1 <= threads <= MOST_THREADS:
        raise ValueError(f"{where}: threads is {threads!r}, expected a whole number of 1 to {MOST_THREADS}")


def _check(key: str, value: str) -> None:
    if key in NAMED:
        raise ValueError(f"Session: got the config key {key}, expected the option {NAMED[key]}= instead")
    if key not in KEYS:
        near = get_close_matches(str(key), KEYS, n=3) or sorted(KEYS)
        raise ValueError(f"Session: config key {key!r} does not exist; choose one of {', '.join(near)}")
    if not isinstance(value, str):
        raise TypeError(f'Session: config {key} is {value!r}, expected text, such as "1"')
