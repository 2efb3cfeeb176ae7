"""Which of the libraries to compare with are installed."""

from __future__ import annotations

from types import ModuleType

torch: ModuleType | None
jax: ModuleType | None
transformers: ModuleType | None
peft: ModuleType | None
genai: ModuleType | None
llama_cpp: ModuleType | None
openvino: ModuleType | None

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
