"""The predictor as it is, in Daft and Dask, as docs/howto/many-rows.md shows it."""

from __future__ import annotations

import daft
import dask.dataframe as dd
import numpy as np

from lucid.batch import Predictor


def test_daft(folder, parquet, expected):
    @daft.cls(max_concurrency=2)
    class Embed:
        def __init__(self) -> None:
            self.predictor = Predictor(folder)

        @daft.method.batch(return_dtype=daft.DataType.list(daft.DataType.float32()))
        def __call__(self, text: daft.Series):
            return list(self.predictor({"text": text.to_pylist()})["embedding"])

    rows = daft.read_parquet(str(parquet))
    columns = rows.with_column("embedding", Embed()(rows["text"])).to_pydict()
    assert columns["id"] == list(range(len(expected)))
    np.testing.assert_allclose(np.array(columns["embedding"]), expected, atol=1e-6)


def test_dask(folder, parquet, expected):
    predictor = Predictor(folder)

    def embed(part):
        columns = predictor({"text": part["text"]})
        return part.assign(embedding=list(columns["embedding"]), error=columns["error"])

    rows = dd.read_parquet(parquet)
    meta = rows._meta.assign(embedding=object(), error="")
    table = rows.map_partitions(embed, meta=meta).compute(scheduler="processes")
    np.testing.assert_allclose(np.stack(table["embedding"]), expected, atol=1e-6)
