"""The loop that `lucid map` is measured against: embeddings of a Parquet file, written by hand with care.

All texts are sorted by length and computed in batches of 4,096 tokens, by two threads that do not wait busily.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import onnxruntime
import pyarrow as pa
import pyarrow.parquet as pq
from tokenizers import Tokenizer

BUDGET, LONGEST, THREADS = 4096, 256, 2


def main(folder: Path, source: Path, output: Path) -> None:
    """Read, compute, write."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = THREADS
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    session = onnxruntime.InferenceSession(str(folder / "model.onnx"), options, providers=["CPUExecutionProvider"])
    names = {value.name for value in session.get_inputs()}
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.enable_truncation(LONGEST)
    tokenizer.no_padding()

    table = pq.read_table(source)
    ids = [np.array(text.ids) for text in tokenizer.encode_batch(table["text"].to_pylist())]
    order = sorted(range(len(ids)), key=lambda row: -len(ids[row]))
    vectors = np.empty((len(ids), 384), np.float32)
    start = 0
    while start < len(order):
        longest = len(ids[order[start]])
        rows = order[start : start + max(1, BUDGET // longest)]
        inputs = {name: np.zeros((len(rows), longest), np.int64) for name in names}
        for place, row in enumerate(rows):
            inputs["input_ids"][place, : len(ids[row])] = ids[row]
            inputs["attention_mask"][place, : len(ids[row])] = 1
        vectors[rows] = session.run(["sentence_embedding"], inputs)[0]
        start += len(rows)
    lists = pa.ListArray.from_arrays(np.arange(len(ids) + 1, dtype=np.int32) * 384, vectors.reshape(-1))
    pq.write_table(table.append_column("embedding", lists), output, use_dictionary=["text"])


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
