"""Which of the libraries to compare with are installed."""

from __future__ import annotations

from typing import TYPE_CHECKING

__all__ = ["genai", "jax", "llama_cpp", "openvino", "peft", "torch", "transformers"]

if (
    TYPE_CHECKING
):  # a name whose library is not installed is None; the type of a module checks the calls of its functions
    from benchmarks import genai_peer as genai
    from benchmarks import jax_peer as jax
    from benchmarks import llama_cpp_peer as llama_cpp
    from benchmarks import openvino_peer as openvino
    from benchmarks import peft_peer as peft
    from benchmarks import torch_peer as torch
    from benchmarks import transformers_peer as transformers
else:
    try:
        from benchmarks import torch_peer
    except ModuleNotFoundError:
        torch = None
    else:
        torch = torch_peer

    try:
        from benchmarks import jax_peer
    except ModuleNotFoundError:
        jax = None
    else:
        jax = jax_peer

    try:
        from benchmarks import transformers_peer
    except ModuleNotFoundError:
        transformers = None
    else:
        transformers = transformers_peer

    try:
        from benchmarks import peft_peer
    except ModuleNotFoundError:
        peft = None
    else:
        peft = peft_peer

    try:
        from benchmarks import genai_peer
    except ModuleNotFoundError:
        genai = None
    else:
        genai = genai_peer

    try:
        from benchmarks import llama_cpp_peer
    except ModuleNotFoundError:
        llama_cpp = None
    else:
        llama_cpp = llama_cpp_peer

    try:
        from benchmarks import openvino_peer
    except ModuleNotFoundError:
        openvino = None
    else:
        openvino = openvino_peer
