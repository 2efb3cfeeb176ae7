"""Exported models are as lean as if written by hand, and every weight in them has its name in the checkpoint.

Narrow models with as many layers and heads as the published ones: widths change no node.
"""

from __future__ import annotations

import re
from collections import Counter

import onnx
import pytest

import lucid
from lucid import nn
from lucid.export import to_onnx
from lucid.models.bert import RENAMES, Bert, BertConfig
from lucid.models.gpt2 import GPT2, GPT2Config
from lucid.models.lfm2 import Lfm2
from lucid.models.llama import Llama, LlamaConfig
from lucid.models.qwen3_next import Qwen3Next
from lucid.models.smolvlm import SmolVLM
from lucid.models.t5 import T5, T5Config
from lucid.models.vision.vit import ViT, ViTConfig
from tests.combinations import first_of_each, turns
from tests.models import goldens
from tests.models.zoo import ZOO, Entry, reader

# Ops of arithmetic on sizes and of shaping masks and positions.
PLUMBING = {"Shape", "Gather", "Slice", "Concat", "Unsqueeze", "Squeeze", "Expand", "Cast", "Range", "ConstantOfShape"}

BERT_BASE = Bert(BertConfig(50, hidden_size=48, num_layers=12, num_heads=12, intermediate_size=96, max_positions=512))
LLAMA = Llama(LlamaConfig(50, 64, 128, num_heads=32, num_kv_heads=8, head_dim=2, windows=(None,) * 32))
MISTRAL = Llama(LlamaConfig(50, 64, 128, num_heads=32, num_kv_heads=8, head_dim=2, windows=(4096,) * 32))
DEEP = [
    # model, path of its layers, their number, nodes per layer, nodes outside the layers
    pytest.param(BERT_BASE, r"encoder\.layer\.(\d+)[./]", 12, 18, 12, id="BERT-base"),
    pytest.param(LLAMA, r"model\.layers\.(\d+)[./]", 32, 20, 25, id="Llama 3 8B"),
    pytest.param(MISTRAL, r"model\.layers\.(\d+)[./]", 32, 20, 30, id="Mistral 7B"),
    pytest.param(GPT2(GPT2Config(50, hidden_size=48)), r"transformer\.h\.(\d+)[./]", 12, 18, 12, id="GPT-2 small"),
    pytest.param(
        T5(T5Config(50, 48, 4, 96, 6, 6, 8)), r"encoder\.block\.(\d+)[./]", 6, 14, 150, id="T5 small, encoder"
    ),
    pytest.param(
        ViT(ViTConfig(hidden_size=48, intermediate_size=96)), r"encoder\.layer\.(\d+)[./]", 12, 18, 12, id="ViT-B/16"
    ),
]


@pytest.mark.parametrize(("model", "place", "layers", "most", "around"), DEEP)
def test_a_layer_takes_few_nodes_and_none_of_them_reads_sizes(
    model: nn.Module, place: str, layers: int, most: int, around: int
) -> None:
    exported = to_onnx(model)
    assert exported.opset_import[0].version == 23
    by_layer: dict[int, Counter[str]] = {}
    outside: Counter[str] = Counter()
    for node in exported.graph.node:
        match = re.match(place, node.name)
        kinds = by_layer.setdefault(int(match[1]), Counter()) if match else outside
        kinds[node.op_type] += 1
    assert sorted(by_layer) == list(range(layers))
    # Values that layers share (a mask, its shape) are emitted once, in the first of them.
    shared = by_layer[0] - by_layer[1]
    assert by_layer[0] - shared == by_layer[1] == by_layer[layers - 1]
    assert by_layer[1].total() <= most, by_layer[1]
    assert not PLUMBING & by_layer[1].keys(), by_layer[1]
    assert (outside + shared).total() <= around, outside + shared
    assert (outside + shared)["Shape"] <= 3


def test_a_layer_of_bert_is_what_one_would_draw_by_hand() -> None:
    """Four products with their biases, the attention, two more around GELU, two sums and two norms."""
    nodes = [
        node.op_type
        for node in to_onnx(BERT_BASE).graph.node
        if node.name.startswith(("encoder.layer.5.", "encoder.layer.5/"))
    ]
    assert Counter(nodes) == {"MatMul": 6, "Add": 8, "Attention": 1, "Gelu": 1, "LayerNormalization": 2}


def test_a_layer_of_llama_is_what_one_would_draw_by_hand() -> None:
    """Seven products, rotated queries and keys, the attention, SiLU and the gate, two sums and two norms."""
    nodes = [
        node.op_type
        for node in to_onnx(LLAMA).graph.node
        if node.name.startswith(("model.layers.5.", "model.layers.5/"))
    ]
    expected = {"MatMul": 7, "RotaryEmbedding": 2, "Attention": 1, "Sigmoid": 1, "Mul": 2, "Add": 2}
    assert Counter(nodes) == {**expected, "RMSNormalization": 2}


# Names ----------------------------------------------------------------------------------------------------------------

SUFFIXES = re.compile(
    r"(\[[\w:, ]+\])?(\.T(\[\d+\])?|\.turned)?(\.add\(1\)|\.exp|\.reshape|\.unsqueeze|\.less_equal\(.*\))?$"
)
"""The suffix of an initializer's name after the checkpoint's: ``[q]`` for a part, ``.T`` if it is stored transposed,
``.T[3]`` for that of one expert, ``.turned`` for those of all experts as onnxruntime's MoE has them,
``.add(1)`` for the sum with 1, which a norm of Gemma stores where it is expanded, ``.exp`` for the scale of logits,
``.reshape`` and ``.unsqueeze`` for a number of each head,
``.less_equal(...)`` for what of a mask excludes, where attention is expanded.
"""

UNUSED = "|".join(
    (
        r"pooler\.|^cls\.|^lm_head|^vocab_|classifier|mask_token|position_ids|^logit_scale$|EncDecAttention.relative",
        r"masked_spec_embed$|parametrizations\.weight\.original0$",  # the second is a factor of original1's
        r"^contact_head\.|rotary_embeddings\.inv_freq$",
        r"fusion_stage\.layers\.0\.residual_layer1\.",  # of a finer image, where the coarsest is the first
    )
)
"""Stored, but not used by the model: heads of other tasks, position numbers, and parts that nothing is given to."""


JOINED = [
    (r"\.mlp\.experts\.(gate_up|down)_proj(_bias)?$", r".mlp.\1\2"),  # of gpt-oss, whose axes are exchanged
    (r"\.block_sparse_moe\.router\.layer\.", ".mlp.gate."),
    (r"\.block_sparse_moe\.input_linear\.weight$", ".mlp.experts.gate_up_proj"),
    (r"\.block_sparse_moe\.output_linear\.weight$", ".mlp.experts.down_proj"),
    (r"\.block_sparse_moe\.", ".mlp."),
    (r"experts\.\d+\.(w1|w3|gate_proj|up_proj)\.weight$", "experts.gate_up_proj"),
    (r"experts\.\d+\.(w2|down_proj)\.weight$", "experts.down_proj"),
]
"""The weights of all experts are one array, with the name that transformers gives it in memory."""


LIKE_LLAMA = [
    (r"^(?:gpt_neox|transformer)\.", "model."),
    (r"^embed_out\.", "lm_head."),
    (r"\.(?:embed_in|word_embeddings)\.", ".embed_tokens."),
    (r"\.(?:final_layer_?norm|ln_f)\.", ".norm."),
    (r"\.h\.(\d+)\.self_attention\.", r".layers.\1.self_attn."),
    (r"\.h\.", ".layers."),
    (r"\.(?:attention|self_attn)\.dense\.", ".self_attn.o_proj."),
    (r"\.(?:attention|self_attn)\.query_key_value\.", ".self_attn.qkv_proj."),
    (r"\.mlp\.(?:c_fc|fc1|dense_h_to_4h)\.", ".mlp.up_proj."),
    (r"\.mlp\.(?:c_proj|fc2|dense_4h_to_h)\.", ".mlp.down_proj."),
]
"""Decoders that are made of Llama's parts have Llama's names."""


def checkpoint_names(entry: Entry) -> set[str]:
    """The keys of the files; the current ones for the family's oldest files, the joined ones for single experts."""
    of_files = {
        "models/bert.py": RENAMES,
        **dict.fromkeys(("models/mixtral.py", "models/deepseek.py"), JOINED),
        "models/lfm2.py": Lfm2.checkpoint.renames,
        "models/smolvlm.py": SmolVLM.checkpoint.renames,
        "models/qwen3_next.py": [*JOINED, *Qwen3Next.checkpoint.renames],
    }
    renames = of_files.get(entry.file, LIKE_LLAMA if entry.file in ("models/llama.py", "models/falcon.py") else [])
    names = set()
    for name in lucid.load(goldens.folder(entry.variant)):
        for pattern, replacement in renames:
            name = re.sub(pattern, replacement, name)
        names.add(name)
    return names


def weights_of(model: onnx.ModelProto) -> set[str]:
    return {SUFFIXES.sub("", tensor.name) for tensor in model.graph.initializer if "constant" not in tensor.name}


def name_of(value: Entry | str) -> str:
    return value if isinstance(value, str) else value.variant


SAME_NAMES = [entry for entry in ZOO if entry.variant.endswith(("/base", "/llama3", "/window", "/v1_1", "/gelu"))]


@pytest.mark.parametrize(("entry", "target"), turns(SAME_NAMES, goldens.TARGETS, reader), ids=name_of)
def test_initializers_have_the_names_of_the_checkpoint(entry: Entry, target: str) -> None:
    names, stored = weights_of(entry.exported(target)), checkpoint_names(entry)
    assert names <= stored
    unused = {name for name in stored - names if re.search(UNUSED, name)}
    assert names | unused == stored


@pytest.mark.parametrize("entry", first_of_each(SAME_NAMES, reader), ids=name_of)
def test_no_weight_is_stored_twice_or_under_a_number(entry: Entry) -> None:
    """Unnamed initializers are small: sizes, scales, a mask's values, the buckets of up to 257 distances, and where
    positions are sines and cosines one table of 24 positions.
    """
    exported = entry.exported("any")
    numbered = [tensor for tensor in exported.graph.initializer if "constant" in tensor.name]
    most = {onnx.TensorProto.INT64: 257 * 8}
    if entry.variant in ("marian/base", "m2m_100/base"):
        (table,) = (tensor for tensor in numbered if len(tensor.raw_data) > 256)
        assert list(table.dims) in ([24, 16], [25, 16])
        numbered.remove(table)
    assert all(len(tensor.raw_data) <= most.get(tensor.data_type, 256) for tensor in numbered)
    # Of a Swin's shifted windows each has a bias, made of one table and of what they see of each other.
    weights = [tensor for tensor in exported.graph.initializer if not tensor.name.endswith("[shifted]")]
    total = sum(len(tensor.raw_data) for tensor in weights)
    assert total <= sum({id(p): p.numpy().nbytes for p in entry.shared().parameters()}.values()) + 3000
