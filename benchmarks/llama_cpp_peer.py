"""llama.cpp, as its server calls it: a batch with a part of each sequence. Imported only if it is installed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import llama_cpp as cpp
import numpy as np

from benchmarks.decoders import Decoding, prompts
from benchmarks.graphs import Array

_SILENT = cpp.llama_log_callback(lambda level, text, data: None)


class LlamaCppDecoding(Decoding):
    """A GGUF file with llama.cpp's defaults; each text is a sequence of its own, and a call continues all of them."""

    def __init__(self, file: Path, batch: int, filled: int, threads: int) -> None:
        cpp.llama_log_set(_SILENT, None)
        cpp.llama_backend_init()
        self._model = cpp.llama_model_load_from_file(str(file).encode(), cpp.llama_model_default_params())
        options = cpp.llama_context_default_params()
        options.n_ctx, options.n_seq_max = batch * 2 * filled, batch
        options.n_threads = options.n_threads_batch = threads
        self._context = cpp.llama_init_from_model(self._model, options)
        self._vocabulary = cpp.llama_vocab_n_tokens(cpp.llama_model_get_vocab(self._model))
        self._ids, self._filled = prompts(self._vocabulary, batch, filled), filled
        self._prompt, self._next = _batch(self._ids, 0), _batch(self._ids[:, :1], filled)
        self.prefill()

    def prefill(self) -> Array:
        self._forget(0)
        return self._decode(self._prompt)

    def step(self) -> Array:
        self._forget(self._filled)
        return self._decode(self._next)

    def generate(self, count: int) -> Array:
        columns = [self.prefill().argmax(axis=-1)]
        while len(columns) < count:
            after = _batch(columns[-1][:, None], self._filled + len(columns) - 1)
            columns.append(self._decode(after).argmax(axis=-1))
        return np.stack(columns, axis=1)

    def _forget(self, start: int) -> None:
        """Positions from `start` on, of all sequences."""
        cpp.llama_memory_seq_rm(cpp.llama_get_memory(self._context), -1, start, -1)

    def _decode(self, batch: Any) -> Array:
        """The logits after the last token of each sequence (N, vocab)."""
        if code := cpp.llama_decode(self._context, batch):
            raise RuntimeError(f"llama_decode returned {code}")
        last = [place for place in range(batch.n_tokens) if batch.logits[place]]
        rows = [cpp.llama_get_logits_ith(self._context, place) for place in last]
        return np.stack([np.ctypeslib.as_array(row, (self._vocabulary,)) for row in rows])


def _batch(ids: Array, start: int) -> Any:
    """Tokens (N, L) of N sequences from a position on, with logits after the last of each."""
    length = ids.shape[1]
    batch = cpp.llama_batch_init(ids.size, 0, 1)
    batch.n_tokens = ids.size
    for place, token in enumerate(ids.reshape(-1).tolist()):
        batch.token[place], batch.pos[place] = token, start + place % length
        batch.n_seq_id[place], batch.seq_id[place][0] = 1, place // length
        batch.logits[place] = place % length == length - 1
    return batch
