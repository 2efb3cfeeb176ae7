"""From sound to text: windows of 30 seconds one after the other, each begun where the last segment ended.

The windows and segments are those of openai/whisper's `transcribe` and of transformers' sequential algorithm, with
greedy search. Two things are left out: retries at other temperatures, and the text so far as a prompt.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

import lucid
from lucid import nn
from lucid.models.checkpoints.config import Array
from lucid.models.speech.log_mel import HOP, checked_samples, log_mel
from lucid.models.speech.whisper_rules import Ids, only, writing_rules
from lucid.models.speech.whisper_tokens import WhisperTokenizer
from lucid.models.speech.word_times import Word, token_ends, words_of
from lucid.tracing.inner_outputs import with_outputs

_STEP = 2  # frames from one timestamp to the next: 0.02 s
_PER_SECOND = 100  # frames
_POSITIONS = 448  # of every published checkpoint

Sessions: TypeAlias = "tuple[lucid.runtime.Session, lucid.runtime.Session]"


class Segment(NamedTuple):
    """A part of a text, and when it is spoken, in seconds."""

    start: float
    end: float
    text: str
    tokens: list[int]
    """The ids of the text."""
    words: tuple[Word, ...] = ()
    """Its words, if they were asked for."""


@dataclass(frozen=True)
class Transcription:
    """The text of a recording.

    Attributes:
        language: its code, given or detected; None for a model that knows English only.
        text: all of it.
        segments: its parts, in order.
    """

    language: str | None
    text: str
    segments: list[Segment]


def transcribe(
    model: nn.EncoderDecoder | Sessions,
    tokenizer: WhisperTokenizer,
    samples: npt.ArrayLike,
    *,
    language: str | None = None,
    task: str = "transcribe",
    timestamps: bool = True,
    no_speech_threshold: float | None = 0.6,
    logprob_threshold: float | None = -1.0,
    max_positions: int | None = None,
    words: bool | lucid.runtime.Session = False,
    on_segment: Callable[[Segment], None] | None = None,
) -> Transcription:
    """Write down what is said, with greedy search.

    Args:
        model: a `Whisper`, or the sessions of its encoder and of its decoder, as `EncoderDecoderGenerator` takes them.
        tokenizer: of the same checkpoint.
        samples: (n,) floating-point, 16,000 per second, of any length: `read_wav` gives them.
        language: a code such as "en"; by default the most probable one for the first window.
        task: "transcribe", or "translate" into English.
        timestamps: whether the model writes when segments begin and end; otherwise each window is one segment.
        no_speech_threshold: a window is left out where silence is more probable than this and the text is improbable;
            None: no window is.
        logprob_threshold: a text is improbable if the mean log probability of its tokens is below this; None: any is.
        max_positions: the most tokens of a prompt and a text. By default the model's config or the capacity of the
            session's buffers tells it, otherwise 448.
        words: whether segments have the times of their words, from the attention of `tokenizer.alignment_heads`, for
            which the model reads each window's text once more; the session of the whole model, exported with
            ``outputs=["attentions"]``, where `model` is a pair of sessions.
        on_segment: called with each segment as soon as it is known.

    Raises:
        TypeError, ValueError: for samples as `log_mel`, for a language or task that the model does not have, and for a
            model that hears no sound; for `words` without heads, or without a model that gives their attention.
        LogitsError: for logits that no token can be chosen from, such as NaN.
    """
    sound = checked_samples(samples, "transcribe")
    mels, width = _window_shape(model)
    encoder, decoder = model if isinstance(model, tuple) else (model, None)
    positions = max_positions
    if positions is None:
        positions = lucid.generation.models.positions_of(decoder or encoder) or _POSITIONS
    # All prompts have this length; it is made here for its errors, before anything is computed.
    prompt = tokenizer.prompt(language or next(iter(tokenizer.languages), None), task, timestamps)
    if positions <= len(prompt):
        raise ValueError(
            f"transcribe: max_positions is {positions}, expected more than the {len(prompt)} of the prompt"
        )
    attend = _attention(model, tokenizer, words) if words else None
    generator = lucid.generation.EncoderDecoderGenerator(encoder, decoder, max_positions=positions)
    length = sound.size // HOP
    features = log_mel(sound, mels, max(length, width))
    segments: list[Segment] = []
    seek = 0
    while seek < length:
        size = min(width, length - seek)
        window = features[:, seek : seek + width]
        heard = np.pad(window, ((0, 0), (0, width - window.shape[1])))[None]
        texts = generator.encode(heard)
        if language is None and tokenizer.languages:
            language = _detect_language(texts, tokenizer)
        prompt = tokenizer.prompt(language, task, timestamps)
        tokens, certainty = _listen(texts, tokenizer, prompt, positions, timestamps)
        improbable = logprob_threshold is None or certainty < logprob_threshold
        if no_speech_threshold is not None and improbable and _silence(texts, tokenizer) > no_speech_threshold:
            tokens = []
        spans, after = _spans(tokens, tokenizer.first_timestamp, size)
        ends = None if attend is None or not tokens else seek / _PER_SECOND + attend(heard, prompt, tokens, size)
        place = 0
        for start, end, part in spans:
            ids = [token for token in part if token < tokenizer.end_of_text]
            text = tokenizer.decode(ids).strip()
            spoken = () if ends is None else _words(tokens, ends, place, part, tokenizer, language)
            place += len(part)
            if text and end > start:
                segments.append(Segment((seek + start) / _PER_SECOND, (seek + end) / _PER_SECOND, text, ids, spoken))
                if on_segment is not None:
                    on_segment(segments[-1])
        seek += after
    whole = tokenizer.decode([token for segment in segments for token in segment.tokens]).strip()
    return Transcription(language, whole, segments)


def _attention(
    model: nn.EncoderDecoder | Sessions, tokenizer: WhisperTokenizer, words: bool | lucid.runtime.Session
) -> Callable[[Array, list[int], list[int], int], Array]:
    """A function of a window, the prompt, the tokens and a number of frames that gives the end of each token."""
    heads = tokenizer.alignment_heads
    if not heads:
        raise ValueError("transcribe: words: generation_config.json has no alignment_heads, which tell when words are")
    run: Callable[[dict[str, Array]], Mapping[str, Any]]
    if isinstance(words, lucid.runtime.Session):
        run = words.run
    elif isinstance(model, tuple):
        raise ValueError(
            "transcribe: words=True: two sessions give no attention; give a third: words=Session(path), of the whole "
            'model, exported by to_onnx(whisper, outputs=["attentions"])'
        )
    else:
        function = with_outputs(model, ["attentions"])

        def run(arrays: dict[str, Array]) -> Mapping[str, Any]:
            outputs = function(**{name: lucid.tensor(array) for name, array in arrays.items()})
            return {name: value.numpy() for name, value in outputs.items()}

    def ends(window: Array, prompt: list[int], tokens: list[int], size: int) -> Array:
        outputs = run({"input_features": window, "decoder_input_ids": np.array([[*prompt, *tokens]])})
        named = [f"decoder.cross_attentions.{layer}" for layer, _ in heads]
        if lost := [name for name in named if name not in outputs]:
            raise ValueError(f"transcribe: words: the model has no output {lost[0]}; export it with attentions")
        weights = [
            outputs[name][0, head, len(prompt) :, : size // 2] for name, (_, head) in zip(named, heads, strict=True)
        ]
        return token_ends(np.stack(weights), tokenizer.median_filter_width)

    return ends


def _words(
    tokens: list[int], ends: Array, first: int, part: list[int], tokenizer: WhisperTokenizer, language: str | None
) -> tuple[Word, ...]:
    """The words of a window's tokens from `first` on. A token begins where the one before it ends."""
    times = [(0.0 if not place else ends[place - 1], ends[place]) for place in range(len(tokens))]
    text = [place for place in range(first, first + len(part)) if tokens[place] < tokenizer.end_of_text]
    rounded = [(round(float(times[place][0]), 2), round(float(times[place][1]), 2)) for place in text]
    return tuple(words_of([tokens[place] for place in text], rounded, tokenizer.decode, language))


def _window_shape(model: nn.EncoderDecoder | Sessions) -> tuple[int, int]:
    """The mel bands and frames that a model hears at once."""
    inputs: dict[str, Sequence[object]]
    if isinstance(model, tuple):
        inputs = {name: shape for name, (_, shape) in model[0].inputs.items()}
    else:
        inputs = {name: spec.shape for name, spec in model.encoder_input_specs().items()}
    match inputs.get("input_features"):
        case (_, int(mels), int(frames)):
            return mels, frames
    raise ValueError(
        f"transcribe: the encoder takes {', '.join(inputs)}, expected input_features (N, mels, frames) of fixed sizes; "
        "give a Whisper, or the sessions of its encoder and of its decoder"
    )


def _listen(
    texts: lucid.generation.Generator,
    tokenizer: WhisperTokenizer,
    prompt: list[int],
    positions: int,
    timestamps: bool,
) -> tuple[list[int], float]:
    """The text of a window without the token that ends it, and the mean log probability of its tokens."""
    certainties: list[float] = []

    def record(ids: Ids, logits: Array) -> Array:
        certainties.append(float(lucid.generation.sampling.log_probabilities(logits).max()))  # the token to be taken
        return logits

    rules = [*writing_rules(tokenizer, len(prompt), timestamps), record]
    most, end = positions - len(prompt), tokenizer.end_of_text
    (tokens,) = texts.generate(prompt, max_new_tokens=most, eos_token_id=end, logits_processors=rules)
    return [token for token in tokens.tolist() if token != end], float(np.mean(certainties))


def _detect_language(texts: lucid.generation.Generator, tokenizer: WhisperTokenizer) -> str:
    """The most probable language of a window."""
    rule = only(list(tokenizer.languages.values()))
    ((token,),) = texts.generate([tokenizer.start_of_transcript], max_new_tokens=1, logits_processors=[rule])
    return next(code for code, known in tokenizer.languages.items() if known == token)


def _silence(texts: lucid.generation.Generator, tokenizer: WhisperTokenizer) -> float:
    """The probability that nobody speaks in a window."""
    shares: list[float] = []

    def record(ids: Ids, logits: Array) -> Array:
        shares.append(float(lucid.generation.sampling.probabilities(logits)[0, tokenizer.no_speech]))
        return logits

    texts.generate([tokenizer.start_of_transcript], max_new_tokens=1, logits_processors=[record])
    return shares[0]


def _spans(tokens: list[int], first_timestamp: int, size: int) -> tuple[list[tuple[int, int, list[int]]], int]:
    """The segments of a window of so many frames: first and last frame, and tokens; and the frame to go on from.

    Two timestamps in a row are the end of a segment and the beginning of another. A segment without an end is left for
    the next window; after a single timestamp at the end of the text nobody speaks. A window without two timestamps in a
    row is one segment, from the beginning of the window to the last timestamp, as in openai/whisper.
    """
    frames = [(token - first_timestamp) * _STEP for token in tokens]  # negative for text
    ends = [at for at in range(1, len(tokens)) if min(frames[at - 1], frames[at]) >= 0]
    if not ends:
        last = max(frames, default=0)
        return [(0, last if last > 0 else size, tokens)], size
    complete = frames[-1] >= 0 > frames[-2]
    if complete:
        ends.append(len(tokens))
    spans = [(frames[a], frames[b - 1], tokens[a:b]) for a, b in zip([0, *ends], ends, strict=False)]
    last = spans[-1][1]
    return spans, size if complete or last == 0 else last  # without timestamp rules it could be 0: go on anyway
