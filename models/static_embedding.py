"""Static embeddings: texts as the mean of a vector for each token (Model2Vec, 2024), or as the weights of its tokens.

::

    encoder = lucid.models.load("potion-base-8M")              # or static-retrieval-mrl-en-v1, of sentence-transformers
    encoder(input_ids, attention_mask)                         # (N, E)

There is no network and no limit of length. The sparse kind, a weight for each token that a text has, is for queries to
documents of SPLADE (Geng et al. 2024, "Towards Competitive Search Relevance for Inference-Free Learned Sparse
Retrievers").
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Self

import lucid
from lucid import Tensor, TensorType, nn, ops
from lucid.models.checkpoints import option_table as option
from lucid.models.checkpoints.families import OTHER_FAMILIES
from lucid.models.checkpoints.pretrained import Checkpoint, Config, ConfigError, Source
from lucid.models.checkpoints.quantized_weights import as_array
from lucid.models.checkpoints.sentence_files import MEAN, NORMALIZE, SentenceLayer, read_modules
from lucid.models.checkpoints.static_files import MODEL2VEC, TABLES, unknown_token
from lucid.models.parts.demonstration import SideBySide, checkpoint_folder
from lucid.models.parts.sentences import OfModules, PooledEncoder
from lucid.models.parts.text_encoders import text_specs

_FAMILY = OTHER_FAMILIES["static_embedding"]


@dataclass(frozen=True)
class StaticConfig(option.OptionTable):
    """Sizes, and which of Model2Vec's further weights there are."""

    vocab_size: int = option.size("vocab_size")
    hidden_size: int = option.size("hidden_size")
    rows: int | None = None
    """The vectors of a table that tokens share; None where each has its own."""
    weighted: bool = False
    """Whether each token has a weight, too."""
    skipped: int | None = None
    """A token that is left out: Model2Vec passes over unknown words, sentence-transformers does not."""
    sentence_layers: tuple[SentenceLayer, ...] = (MEAN,)

    @classmethod
    def read(cls, options: Config) -> Self:
        """From the sizes of the weights, and Model2Vec's option normalize.

        Raises:
            ConfigError: for a mapping to rows that the table does not have.
        """
        unit = SentenceLayer("1_Normalize", NORMALIZE)
        layers = (MEAN, unit) if options.get("normalize", bool, False) else (MEAN,)
        config = cls.from_rows(options, weighted="weights" in options.weights, sentence_layers=layers)
        if "mapping" not in options.weights:
            return config
        rows = next((options.shapes[name][0] for name in TABLES if name in options.shapes), 0)
        places = as_array(options.weights["mapping"])
        if places.dtype.kind not in "iu" or not 0 <= places.min() <= places.max() < rows:
            raise ConfigError(
                f"{options.where}: the mapping next to it has {places.dtype} from {places.min()} to {places.max()}, "
                f"expected integers from 0 to {rows - 1}, the rows of its table"
            )
        return replace(config, rows=rows)


class StaticEncoder(PooledEncoder[StaticConfig]):
    """Token ids (N, L) to the mean of the tokens' vectors, (N, E), with the layers after it; 0 for no token.

    ``attention_mask`` (N, L) is 1 for tokens to keep, 0 for padding.
    """

    checkpoint = Checkpoint(
        family=_FAMILY,
        read=StaticConfig.read,
        ignored_options=[".*"],  # Model2Vec reads no other option, and no other of these folders has one
        renames=[("^embeddings$", "embedding.weight")],
    )

    def __init__(self, config: StaticConfig) -> None:
        super().__init__(config)
        tokens, rows = config.vocab_size, config.rows
        self.embedding = nn.Embedding(tokens if rows is None else rows, config.hidden_size)
        self.mapping = None if rows is None else nn.Buffer(lucid.zeros(tokens, dtype=lucid.int64))
        self.weights = nn.init.new_parameter(tokens) if config.weighted else None

    @classmethod
    def source(cls, folder: Path) -> Source:
        source = super().source(folder)
        if read_modules(folder) is not None:
            return source

        def read(options: Config) -> StaticConfig:
            config: StaticConfig = source.read(options)
            if options.model_type != MODEL2VEC:
                return config
            options.whole("max_length", None)  # of texts, which `static_tokenizer` cuts off there
            return replace(config, skipped=unknown_token(folder, config.vocab_size))

        return source._replace(read=read)

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor | None = None, token_type_ids: Tensor | None = None
    ) -> Any:
        return super().forward(input_ids, self._kept(input_ids, attention_mask))

    def states_and_embedding(self, **inputs: Tensor) -> tuple[Tensor, Tensor]:
        mask = self._kept(inputs["input_ids"], inputs.get("attention_mask"))
        return super().states_and_embedding(**inputs | ({} if mask is None else {"attention_mask": mask}))

    def _kept(self, input_ids: Tensor, attention_mask: Tensor | None) -> Tensor | None:
        """The mask without the token that is left out."""
        if self.config.skipped is None:
            return attention_mask
        known = (input_ids != self.config.skipped).astype(lucid.int64)
        return known if attention_mask is None else known * attention_mask

    def encoder_states(self, input_ids: Tensor, *_: Tensor | None, **__: Tensor) -> Tensor:  # type: ignore[override]
        vectors = self.embedding(input_ids if self.mapping is None else ops.take(self.mapping, input_ids, 0))
        return vectors if self.weights is None else vectors * ops.take(self.weights, input_ids, 0).unsqueeze(-1)

    def input_specs(self) -> Mapping[str, TensorType]:
        return text_specs()


@dataclass(frozen=True)
class SparseStaticConfig(option.OptionTable):
    """How many tokens there are."""

    vocab_size: int = option.size("vocab_size")
    sentence_layers: tuple[SentenceLayer, ...] = ()

    @classmethod
    def read(cls, options: Config) -> Self:
        """From the size of the weights; `frozen` says whether training changes them."""
        options.get("frozen", bool, False)
        return cls.from_rows(options)


class SparseStaticEncoder(OfModules[SparseStaticConfig]):
    """Token ids (N, L) to the weights of the tokens that a text has, (N, vocab_size), 0 for others.

    ``attention_mask`` (N, L) is 1 for tokens to keep, 0 for padding.
    """

    checkpoint = Checkpoint(family=_FAMILY, read=SparseStaticConfig.read, head="sparse-encoding")
    output_names: ClassVar[Sequence[str]] = ("sentence_embedding",)

    def __init__(self, config: SparseStaticConfig) -> None:
        super().__init__(config)
        self.weight = nn.init.new_parameter(config.vocab_size)

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        kept = input_ids == input_ids if attention_mask is None else attention_mask != 0
        none = lucid.zeros(input_ids.shape[0], self.config.vocab_size, dtype=self.weight.dtype)
        counts = none.scatter_add(1, input_ids, kept.astype(none.dtype))
        return ops.where(counts > 0, self.weight, 0.0)

    def input_specs(self) -> Mapping[str, TensorType]:
        return text_specs()


def main() -> None:
    """Embed two texts, given as token ids, eagerly and in onnxruntime."""
    model = StaticEncoder.from_pretrained(checkpoint_folder("static_embedding/normalized"))
    both = SideBySide(model)
    first, second = both(lucid.tensor([[5, 7, 9], [5, 8, 9]]), lucid.tensor([[1, 1, 1], [1, 1, 1]]))
    print(both.verdict("embeddings"))
    print(f"cosine of the two texts {(first * second).sum().item():.3f}")


if __name__ == "__main__":
    main()
