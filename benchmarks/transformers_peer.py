"""transformers' decoders with the weights of ours. Imported only if torch and transformers are installed."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers.models.qwen3_moe.modeling_qwen3_moe import Qwen3MoeSparseMoeBlock

from benchmarks.decoders import Decoding, prompts
from benchmarks.graphs import Array
from lucid import nn
from lucid.models.gpt2 import GPT2
from lucid.models.llama import Llama

transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()


def decoder(model: Llama | GPT2) -> Any:
    """The same model in transformers, in evaluation mode."""
    twin: Any = _llama(model) if isinstance(model, Llama) else _gpt2(model)
    state = {name: torch.from_numpy(tensor.numpy().copy()) for name, tensor in model.state_dict().items()}
    loading = twin.load_state_dict(state, strict=False)
    assert not loading.unexpected_keys and set(loading.missing_keys) <= {"lm_head.weight"}, loading
    twin.tie_weights()
    twin.generation_config.eos_token_id = None  # a generation goes on for as long as it is asked to
    return twin.eval()


def random_model(kind: str, name: str, options: Mapping[str, Any]) -> Any:
    """The class of this name with random weights; `options`: those of config.json that are not the defaults."""
    torch.manual_seed(0)
    return getattr(transformers, name)(transformers.AutoConfig.for_model(kind, **options)).eval()


class Outputs(torch.nn.Module):
    """Some outputs of a model, by name, for inputs in a certain order; without a cache."""

    def __init__(self, model: Any, inputs: Sequence[str], outputs: Sequence[str]) -> None:
        super().__init__()
        self.model, self.inputs, self.outputs = model, inputs, outputs
        cached = "use_cache" in inspect.signature(model.forward).parameters
        self.options = {"use_cache": False} if cached else {}

    def forward(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """The outputs."""
        outputs = self.model(**dict(zip(self.inputs, tensors, strict=True)), **self.options)
        return tuple(outputs[name] for name in self.outputs)


def _llama(model: Llama) -> Any:
    c = model.config
    config = transformers.LlamaConfig(
        vocab_size=c.vocab_size,
        hidden_size=c.hidden_size,
        intermediate_size=c.intermediate_size,
        num_hidden_layers=len(c.windows),
        num_attention_heads=c.num_heads,
        num_key_value_heads=c.num_kv_heads,
        head_dim=c.head_dim,
        rope_theta=c.rope.theta,
        rms_norm_eps=c.eps,
        tie_word_embeddings=c.tied,
    )
    return transformers.LlamaForCausalLM(config)


def _gpt2(model: GPT2) -> Any:
    c = model.config
    config = transformers.GPT2Config(
        vocab_size=c.vocab_size,
        n_positions=c.max_positions,
        n_embd=c.hidden_size,
        n_layer=c.num_layers,
        n_head=c.num_heads,
    )
    return transformers.GPT2LMHeadModel(config)


class TransformersDecoding(Decoding):
    """transformers in torch, eager, with its dynamic cache."""

    def __init__(self, model: Any, batch: int, filled: int) -> None:
        self._model, self._prompt = model, torch.from_numpy(prompts(model.config.vocab_size, batch, filled))
        self._filled = filled
        with torch.no_grad():
            self._cache = model(self._prompt, use_cache=True, logits_to_keep=1).past_key_values

    def prefill(self) -> Array:
        with torch.no_grad():
            logits = self._model(self._prompt, use_cache=True, logits_to_keep=1).logits
        last: Array = logits.numpy()[:, -1]
        return last

    def step(self) -> Array:
        with torch.no_grad():
            logits = self._model(self._prompt[:, :1], past_key_values=self._cache, use_cache=True).logits
        self._cache.crop(-1)
        last: Array = logits.numpy()[:, -1]
        return last

    def generate(self, count: int) -> Array:
        with torch.no_grad():
            ids = self._model.generate(self._prompt, max_new_tokens=count, do_sample=False, pad_token_id=0)
        new: Array = ids.numpy()[:, self._filled :]
        return new


def generation_on(device: str, model: Any) -> Callable[[Array, int], Array]:
    """Greedy generation in half precision on a device, as users call it; the new tokens."""
    model.generation_config.eos_token_id = None
    half = model.to(device, torch.float16)

    def generate(ids: Array, count: int) -> Array:
        prompt = torch.from_numpy(ids).to(device)
        with torch.no_grad():
            tokens = half.generate(
                prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=count, do_sample=False, pad_token_id=0
            )
        new: Array = tokens.cpu().numpy()[:, ids.shape[1] :]
        return new

    return generate


def encoder(name: str, folder: Path) -> Any:
    """A model of usual widths with random weights, whose checkpoint is written to a folder; some have fewer layers."""
    t = transformers
    twin: Any = {
        "MiniLM": lambda: t.BertModel(
            t.BertConfig(hidden_size=384, num_hidden_layers=6, num_attention_heads=12, intermediate_size=1536)
        ),
        "ViT-B": lambda: t.ViTModel(t.ViTConfig(num_hidden_layers=4), add_pooling_layer=False),
        "Whisper tiny, encoder": lambda: t.WhisperForConditionalGeneration(
            t.WhisperConfig(d_model=384, encoder_attention_heads=6, decoder_attention_heads=6, decoder_layers=1)
        ),
        "Swin-T": lambda: t.SwinModel(t.SwinConfig(depths=[2, 2, 2, 2])),
        "ConvNeXt-T": lambda: t.ConvNextModel(t.ConvNextConfig(depths=[2, 2, 3, 2])),
        "wav2vec2 base": lambda: t.Wav2Vec2Model(t.Wav2Vec2Config(num_hidden_layers=4)),
    }[name]()
    twin.eval().save_pretrained(folder)
    return twin.model.encoder if name.startswith("Whisper") else twin


def training(model: Any, batch: Mapping[str, Array], rate: float) -> Callable[[], float]:
    """A step of AdamW on the classes that the first token's state stands for; its loss."""
    model = copy.deepcopy(model)
    optimizer = torch.optim.AdamW(model.parameters(), rate)
    ids, labels = (torch.from_numpy(batch[name]) for name in ("input_ids", "labels"))

    def run() -> float:
        optimizer.zero_grad()
        with torch.enable_grad():
            loss = torch.nn.functional.cross_entropy(model(ids)[0][:, 0], labels)
            loss.backward()
        optimizer.step()
        return float(loss.item())

    return run


def small_decoder(folder: Path, layers: int) -> Any:
    """Llama in the sizes of SmolLM2-135M with random weights, whose checkpoint is written to a folder."""
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=49152,
        hidden_size=576,
        intermediate_size=1536,
        num_hidden_layers=layers,
        num_attention_heads=9,
        num_key_value_heads=3,
        tie_word_embeddings=True,
    )
    twin: Any = transformers.LlamaForCausalLM(config).eval()
    twin.save_pretrained(folder)
    return twin


def head_training(width: int, classes: int, rate: float) -> Callable[..., float]:
    """A step of AdamW on a linear layer; its loss."""
    head = torch.nn.Linear(width, classes)
    optimizer = torch.optim.AdamW(head.parameters(), rate)

    def run(x: Array, labels: Array) -> float:
        optimizer.zero_grad()
        with torch.enable_grad():
            loss = torch.nn.functional.cross_entropy(head(torch.from_numpy(x)), torch.from_numpy(labels))
            loss.backward()
        optimizer.step()
        return float(loss.item())

    return run


def call(model: Any, given: Array) -> Callable[[], Any]:
    """The first output of a model for one input."""
    tensor = torch.from_numpy(given)

    def run() -> Any:
        with torch.no_grad():
            return model(tensor)[0]

    return run


def experts(layer: nn.MixtureOfExperts, x: Array) -> Callable[[], object]:
    """A layer of experts as transformers computes it by default."""
    count, width, inner = layer.experts.down_proj.shape
    config = transformers.Qwen3MoeConfig(
        hidden_size=width,
        moe_intermediate_size=inner,
        num_experts=count,
        num_experts_per_tok=layer.k,
        norm_topk_prob=layer.normalized,
    )
    twin: Any = Qwen3MoeSparseMoeBlock(config).eval()
    twin.load_state_dict({name: torch.from_numpy(tensor.numpy()) for name, tensor in layer.state_dict().items()})
    tokens = torch.from_numpy(x)[None]

    def run() -> object:
        with torch.no_grad():
            return twin(tokens)

    return run


def save(model: Any, tokenizer: Any, folder: Path) -> None:
    """Write a checkpoint with its tokenizer, which genai's builder insists on."""
    model.generation_config.eos_token_id = 2
    model.save_pretrained(folder)
    model.generation_config.eos_token_id = None
    transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer).save_pretrained(folder)
