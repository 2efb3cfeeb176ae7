"""`from_transformers` and `lucid export --via torch`: checkpoints that transformers reads, as our files."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

import lucid
from lucid.generation import EncoderDecoderGenerator, Generator
from lucid.importing import TorchImportError, from_transformers
from lucid.runtime import Session
from lucid.testing import assert_parity
from lucid.testing.original_parity import original_parity
from tests.console import in_process

SMALL = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "vocab_size": 100,
    "max_position_embeddings": 64,
}


def saved(folder: Path, name: str, **options: Any) -> Path:
    """A small checkpoint with random weights."""
    model_class = getattr(transformers, name)
    torch.manual_seed(0)
    model = model_class(model_class.config_class(**(SMALL | options)))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.2)
    model.save_pretrained(folder / name)
    return folder / name


@pytest.fixture
def call(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> Callable[..., tuple[int, str, str]]:
    """A command in this process: its exit code, what it prints, and what it says on stderr."""

    def run(*arguments: object) -> tuple[int, str, str]:
        code = in_process(arguments, monkeypatch, tmp_path)
        out, err = capsys.readouterr()
        return code, out, " ".join(err.split())

    return run


# Decoders -------------------------------------------------------------------------------------------------------------

DECODERS: dict[str, dict[str, Any]] = {
    "GPTNeoXForCausalLM": {},
    "PhiForCausalLM": {},
    "Starcoder2ForCausalLM": {"num_key_value_heads": 2, "sliding_window": 6},
    "FalconForCausalLM": {"alibi": True, "new_decoder_architecture": False, "multi_query": True},
}
WITHOUT_BUFFERS = ("FalconForCausalLM",)  # alibi is added to its scores


@pytest.mark.parametrize("name", DECODERS)
def test_a_decoder_with_its_cache_writes_what_transformers_does(tmp_path: Path, name: str) -> None:
    folder = saved(tmp_path, name, **DECODERS[name])
    decoder = from_transformers(folder)
    assert isinstance(decoder, lucid.nn.CausalDecoder)
    model = getattr(transformers, name).from_pretrained(folder).eval()
    assert set(decoder.state_dict()) == set(model.state_dict())
    assert (decoder.task, decoder.class_name) == ("text-generation", name)
    session = Session(lucid.export.to_onnx(decoder, cache="growing"))
    assert list(session.inputs)[:4] == ["input_ids", "attention_mask", "position_ids", "past_key_values.0.key"]
    assert list(session.outputs)[:3] == ["logits", "present.0.key", "present.0.value"]
    prompts = torch.tensor([[5, 17, 60, 33, 2, 90, 41], [8, 8, 71, 12, 99, 3, 64]])
    mask = torch.ones_like(prompts)
    mask[1, :3] = 0
    options = {"max_new_tokens": 12, "do_sample": False, "pad_token_id": 0, "eos_token_id": None}
    expected = model.generate(prompts, attention_mask=mask, **options)[:, 7:]
    tokens = Generator(session).generate(prompts.numpy(), mask.numpy(), max_new_tokens=12)
    np.testing.assert_array_equal(tokens, expected.numpy())
    with torch.no_grad():
        logits = model(prompts).logits.numpy()
    np.testing.assert_allclose(decoder(lucid.tensor(prompts.numpy())).numpy(), logits, atol=2e-5)
    assert_parity(lucid.quantize(decoder, bits=8, smallest_table=1))
    if name in WITHOUT_BUFFERS:
        assert not decoder.takes_fixed_cache
        with pytest.raises(
            ValueError, match="'fixed': FalconForCausalLM has a mask that .* adds .*; use cache='growing'"
        ):
            lucid.export.to_onnx(decoder, cache="fixed")
        return
    buffered = lucid.export.to_onnx(decoder, cache="fixed")
    by_buffers = Generator(Session(buffered)).generate(prompts.numpy(), mask.numpy(), max_new_tokens=12)
    np.testing.assert_array_equal(by_buffers, tokens)
    report = original_parity(decoder, decoder.part("fixed"), buffered)
    assert report is not None and report.passed


def test_states_are_no_cache_of_keys_and_values(tmp_path: Path) -> None:
    folder = saved(tmp_path, "MambaForCausalLM", state_size=4)
    with pytest.raises(
        TorchImportError, match="MambaForCausalLM takes no cache of keys and values, such as models that keep"
    ):
        from_transformers(folder)


def test_an_encoder_decoder_in_parts_writes_what_transformers_does(call: Any, tmp_path: Path) -> None:
    name, sides = "PegasusForConditionalGeneration", ("encoder", "decoder")
    sizes = {"layers": 1, "attention_heads": 4, "ffn_dim": 64}
    by_side = {f"{side}_{what}": size for side in sides for what, size in sizes.items()}
    folder = saved(tmp_path, name, d_model=32, decoder_start_token_id=1, forced_eos_token_id=None, **by_side)
    for part in sides:
        arguments = ["--via", "torch", "--part", part, "--cache", "growing", "-o", f"{part}.onnx"]
        code, out, _ = call("export", name, *arguments)
        assert code == 0 and "parity with torch" in out
    encoder, decoder = (Session(tmp_path / f"{part}.onnx") for part in sides)
    assert list(encoder.outputs)[:2] == ["last_hidden_state", "present.0.encoder.key"]
    assert list(decoder.inputs)[:3] == ["input_ids", "encoder_attention_mask", "past_key_values.0.decoder.key"]
    ids = torch.tensor([[5, 17, 60, 33, 2, 90, 41], [8, 8, 71, 12, 99, 0, 0]])
    mask = (ids != 0).long()
    model = transformers.PegasusForConditionalGeneration.from_pretrained(folder).eval()
    expected = model.generate(ids, attention_mask=mask, max_new_tokens=10, do_sample=False, eos_token_id=None)[:, 1:]
    generator = EncoderDecoderGenerator(encoder, decoder, decoder_start_token_id=1)
    tokens = generator.generate(ids.numpy(), mask.numpy(), max_new_tokens=10)
    np.testing.assert_array_equal(tokens, expected.numpy())


def test_an_encoder_decoder_of_sounds_in_parts_writes_what_transformers_does(tmp_path: Path) -> None:
    sizes = {"layers": 1, "attention_heads": 4, "ffn_dim": 64}
    by_side = {f"{side}_{what}": size for side in ("encoder", "decoder") for what, size in sizes.items()}
    spectra = {
        "input_feat_per_channel": 20,
        "conv_channels": 16,
        "max_source_positions": 64,
        "max_target_positions": 64,
    }
    folder = saved(tmp_path, "Speech2TextForConditionalGeneration", d_model=32, **spectra, **by_side)
    imported = from_transformers(folder)
    assert isinstance(imported, lucid.nn.EncoderDecoder) and imported.task == "automatic-speech-recognition"
    encoder = Session(lucid.export.to_onnx(imported, part="encoder", cache="growing"))
    decoder = Session(lucid.export.to_onnx(imported, part="decoder", cache="growing"))
    assert dict(encoder.inputs) == {"input_features": (lucid.float32, ("batch_size", "L", 20))}
    assert list(decoder.inputs)[:2] == ["input_ids", "past_key_values.0.decoder.key"]
    model = transformers.Speech2TextForConditionalGeneration.from_pretrained(folder).eval()
    sounds, ids = torch.randn(2, 57, 20), torch.tensor([[2], [7]])
    with torch.no_grad():
        states = model.get_encoder()(sounds)
        for _ in range(8):
            logits = model(encoder_outputs=states, decoder_input_ids=ids, use_cache=False).logits
            ids = torch.cat([ids, logits[:, -1:].argmax(-1)], 1)
    generator = EncoderDecoderGenerator(encoder, decoder)
    tokens = generator.generate(sounds.numpy(), decoder_input_ids=ids[:, :1].numpy(), max_new_tokens=8)
    np.testing.assert_array_equal(tokens, ids[:, 1:].numpy())
    whole = imported(lucid.tensor(sounds.numpy()), lucid.tensor(ids.numpy())).numpy()[:, -2:-1]
    np.testing.assert_allclose(whole, logits[:, -1:].detach().numpy(), atol=2e-5)


# Tasks ----------------------------------------------------------------------------------------------------------------


class Part(torch.nn.Module):
    def __init__(self, sam: torch.nn.Module) -> None:
        super().__init__()
        self.sam = sam


class Encoder(Part):
    """As docs/howto/from-torch.md has it, and the decoder."""

    def forward(self, pixel_values: torch.Tensor) -> Any:
        return {"image_embeddings": self.sam.get_image_embeddings(pixel_values)}


class Decoder(Part):
    def forward(self, image_embeddings: torch.Tensor, input_points: torch.Tensor, input_labels: torch.Tensor) -> Any:
        output = self.sam(image_embeddings=image_embeddings, input_points=input_points, input_labels=input_labels)
        return {"pred_masks": output.pred_masks, "iou_scores": output.iou_scores}


def test_sam_is_an_encoder_and_a_decoder_of_points() -> None:
    sizes = {"image_size": 64, "patch_size": 8}
    vision: dict[str, Any] = {
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "hidden_size": 32,
        "mlp_dim": 64,
        "window_size": 4,
    }
    vision |= {"output_channels": 16, "global_attn_indexes": [1], "num_pos_feats": 8, **sizes}
    prompts = {"hidden_size": 16, "mask_input_channels": 4, **sizes}
    masks = {"hidden_size": 16, "mlp_dim": 32, "num_attention_heads": 4, "iou_head_hidden_dim": 16}
    torch.manual_seed(0)
    parts = {"vision_config": vision, "prompt_encoder_config": prompts, "mask_decoder_config": masks}
    sam = transformers.SamModel(transformers.SamConfig(**parts)).eval()
    with torch.no_grad():
        for parameter in sam.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)

    def drawn(n: int, sets: int, points: int) -> list[torch.Tensor]:
        labels = torch.randint(0, 2, (n, sets, points))
        return [torch.randn(n, 3, 64, 64), torch.rand(n, sets, points, 2) * 64, labels]

    pixels, points, labels = drawn(2, 3, 2)
    states = sam.get_image_embeddings(pixels).detach()
    axes = ("N", "masks", "points")
    encoder = lucid.from_torch(Encoder(sam).eval(), pixels, dynamic=[("N",)])
    decoder = lucid.from_torch(Decoder(sam).eval(), states, points, labels, dynamic=[("N",), axes, axes])
    first, second = (Session(lucid.export.to_onnx(part)) for part in (encoder, decoder))
    pixels, points, labels = drawn(1, 2, 4)
    prompt = {"input_points": points.numpy(), "input_labels": labels.numpy()}
    results = second.run(first.run({"pixel_values": pixels.numpy()}) | prompt)
    with torch.no_grad():
        expected = sam(pixel_values=pixels, input_points=points, input_labels=labels)
    for name, result in results.items():
        theirs = expected[name].numpy()
        np.testing.assert_allclose(result, theirs, atol=5e-5 * float(np.abs(theirs).max()))


def test_a_file_is_checked_against_torch_and_its_card_says_so(call: Any, tmp_path: Path) -> None:
    saved(tmp_path, "RoFormerForSequenceClassification", num_labels=3, num_hidden_layers=1)
    code, out, err = call("export", "RoFormerForSequenceClassification", "--via", "torch", "--for", "onnxruntime")
    assert (code, err) == (0, "")
    assert "parity with NumPy" in out and "parity with torch" in out
    folder = tmp_path / "RoFormerForSequenceClassification-onnxruntime"
    card = (folder / "README.md").read_text()
    read_by = f"transformers {transformers.__version__} and torch {torch.__version__}"
    assert f"| read by | {read_by} |" in card and f"was also compared with {read_by}" in card
    session = Session(folder / "model.onnx")
    assert (list(session.inputs), list(session.outputs)) == (
        ["input_ids", "attention_mask", "token_type_ids"],
        ["logits"],
    )
    assert call("verify", "RoFormerForSequenceClassification", folder, "--via", "torch")[0] == 0


def test_pixels_are_as_large_as_the_preprocessor_makes_them(call: Any, tmp_path: Path) -> None:
    saved(tmp_path, "BeitForImageClassification", image_size=32, patch_size=8, num_labels=3, num_hidden_layers=1)
    (tmp_path / "BeitForImageClassification" / "preprocessor_config.json").write_text(
        json.dumps({"size": {"height": 32, "width": 32}, "crop_size": 24, "do_center_crop": False})
    )
    code, out, _ = call("export", "BeitForImageClassification", "--via", "torch", "--json")
    assert code == 0
    data = json.loads(out)
    assert data["inputs"] == {"pixel_values": "float32[N, 3, 32, 32]"}
    assert data["outputs"] == {"logits": "float32[N, 3]"}
    assert data["parity"]["passed"] and data["original"]["passed"]


def test_weights_that_the_checkpoint_does_not_have_are_no_random_numbers(tmp_path: Path) -> None:
    folder = saved(tmp_path, "RoFormerModel", num_hidden_layers=1)
    with pytest.raises(TorchImportError, match=r"has no weights classifier.dense.bias, .*which RoFormerForSeq"):
        from_transformers(folder, "text-classification")


OWN_CODE = """
import torch
from transformers import RoFormerConfig, PreTrainedModel


class Own(PreTrainedModel):
    config_class = RoFormerConfig

    def __init__(self, config):
        super().__init__(config)
        self.table = torch.nn.Embedding(config.vocab_size, config.hidden_size)
        self.post_init()

    def forward(self, input_ids, attention_mask=None):
        from transformers.modeling_outputs import BaseModelOutput
        return BaseModelOutput(last_hidden_state=self.table(input_ids))
"""


def test_code_of_the_checkpoint_runs_where_it_is_trusted_and_only_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("transformers.dynamic_module_utils.HF_MODULES_CACHE", str(tmp_path / "modules"))
    folder = tmp_path / "own"
    folder.mkdir()
    config = {"model_type": "roformer", "architectures": ["Own"], "auto_map": {"AutoModel": "own.Own"}, **SMALL}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "own.py").write_text(OWN_CODE)
    lucid.save(folder / "model.safetensors", {"table.weight": lucid.randn(100, 32)})
    with pytest.raises(TorchImportError, match="Own is code of the checkpoint's own, which is not run; .*trust_remote"):
        from_transformers(folder)
    own = from_transformers(folder, trust_remote_code=True)
    assert (own.task, own.class_name) == ("feature-extraction", "Own")
    assert_parity(own)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"task": "feature-extraktion"},
            "task 'feature-extraktion' is not known with .*did you mean feature-ext",
        ),
        ({"task": "image-classification"}, "no class for task 'image-classification' of model_type roformer; it has"),
        ({"architecture": "RoFormerForPoems"}, "architectures has 'RoFormerForPoems', which transformers .* does not"),
        ({"inputs": {"pixels": lucid.spec("N")}}, "RoFormerModel has no input pixels: it takes input_ids"),
    ],
)
def test_refusals(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(TorchImportError, match=message):
        from_transformers(saved(tmp_path, "RoFormerModel", num_hidden_layers=1), **options)


def test_the_pooling_of_a_sentence_encoder_is_not_left_out_in_silence(tmp_path: Path) -> None:
    folder = saved(tmp_path, "BertModel")
    (folder / "modules.json").write_text("[]")
    with pytest.raises(TorchImportError, match="modules.json makes one vector .*: give task='feature-extraction'"):
        from_transformers(folder)
    assert from_transformers(folder, "feature-extraction").task == "feature-extraction"


def test_a_folder_that_is_no_checkpoint_is_an_error_in_a_line(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "no_such_type"}')
    with pytest.raises(TorchImportError, match=r"transformers \S+ does not read it: The checkpoint you are trying"):
        from_transformers(tmp_path)
