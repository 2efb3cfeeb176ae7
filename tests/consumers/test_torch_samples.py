"""torch's samples of some operators through `lucid.from_torch`; `tools.torch_samples.imported` tries them all."""

from __future__ import annotations

import pytest
from torch.testing._internal.common_methods_invocations import op_db

from tools.torch_samples.imported import name_of, tried

OPERATORS = {name_of(info): info for info in op_db}


@pytest.mark.parametrize(
    "name",
    [
        "add",
        "baddbmm",
        "cumsum",
        "diff",
        "fmax",
        "flip",
        "index_put",
        "linalg.vector_norm",
        "logaddexp",
        "nan_to_num",
        "diagonal",
        "nn.functional.cross_entropy",
        "cummax",
        "nn.functional.layer_norm",
        "masked_fill",
        "scatter_add",
        "median",
        "var_mean",
        "where",
    ],
)
def test_samples_agree(name: str) -> None:
    result = tried(OPERATORS[name])
    assert result["counts"].get("agrees"), result["reasons"]
    assert not result["counts"].get("differs"), result["reasons"]
