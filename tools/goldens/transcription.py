"""Speech to text with transformers: a sound, its log-mel features, and what a tiny Whisper model hears in it.

The "speech" is a row of tones, each of which is a word of its own, with a long pause. A model of random weights would
repeat one token for ever, so this one is trained for some seconds to write down the words and when they begin and end.
It hears windows of 0.4 s. Its token ids have the order of published checkpoints: 20 words, the end of the text, the
other special tokens, and 21 timestamps from 0.00 to 0.40.
"""

from __future__ import annotations

import json
import random
import shutil
import wave
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from safetensors.numpy import save_file
from tokenizers import AddedToken, Tokenizer, models

from .core import write_json

RATE = 16_000
SECONDS = 3.0
FRAMES = 40  # of a window: 0.4 s
TOKENS: dict[str, Any] = {
    "decoder_start_token_id": 21,
    "eos_token_id": 20,
    "pad_token_id": 20,
    "lang_to_id": {"<|en|>": 22, "<|de|>": 23, "<|fr|>": 24},
    "task_to_id": {"translate": 25, "transcribe": 26},
    "prev_sot_token_id": 28,
    "no_timestamps_token_id": 30,
    "is_multilingual": True,
    "begin_suppress_tokens": [5, 20],
    "suppress_tokens": [3, 8, 21, 22, 23, 24, 25, 26, 27, 28, 29],
    "max_initial_timestamp_index": 5,
}
"""What generation_config.json tells. The token before `no_timestamps_token_id` says that there is no speech."""
STEPS = 400
WORDS = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen "
    "eighteen nineteen"
)
SIZES = {
    "vocab_size": 52,
    "d_model": 16,
    "num_mel_bins": 8,
    "max_source_positions": 20,
    "max_target_positions": 11,
    "encoder_layers": 1,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 24,
    "decoder_ffn_dim": 24,
}


def store_all(folder: Path) -> None:
    """Write the checkpoint, the sound, its features and the cases."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    sound = store_sound(folder / "sound.wav")
    features = {}
    for mels in (80, 128):
        extractor = transformers.WhisperFeatureExtractor(feature_size=mels)
        columns = extractor(sound, sampling_rate=RATE).input_features[0]
        features[f"mels_{mels}"] = np.ascontiguousarray(columns[:, :350:7])
    save_file(features, folder / "features.safetensors")
    store_model(folder, sound)
    store_tokenizer(folder / "tokenizer.json")
    model = transformers.WhisperForConditionalGeneration.from_pretrained(folder, attn_implementation="eager").eval()
    lines = [json.dumps(case(model, sound, number)) for number in range(12)]
    (folder / "cases.json").write_text("[\n" + ",\n".join(lines) + "\n]\n", encoding="utf-8")
    lines = [json.dumps(rule(number)) for number in range(60)]
    (folder / "rules.json").write_text("[\n" + ",\n".join(lines) + "\n]\n", encoding="utf-8")
    store_words(folder, model, sound)
    for path in folder.iterdir():
        path.chmod(0o644)


def tones() -> list[tuple[float, float, int]]:
    """When each tone begins and ends, in seconds, and which word it is."""
    draw = random.Random(0)
    words, at = [], 0.04
    while at < SECONDS - 0.2:
        end = at + draw.randrange(3, 8) * 0.02
        words.append((at, end, draw.randrange(20)))
        at = end + draw.randrange(0, 4) * 0.02 + (0.9 if len(words) == 8 else 0)
    return words


def store_sound(path: Path) -> np.ndarray:
    """The tones over noise: 16 bits."""
    time = np.arange(int(SECONDS * RATE)) / RATE
    sound = 0.01 * np.random.default_rng(0).standard_normal(time.size)
    for begin, end, word in tones():
        since = np.clip(time - begin, 0, end - begin)
        sound += 0.4 * np.sin(np.pi * since / (end - begin)) ** 0.5 * np.sin(2 * np.pi * (200 + 350 * word) * since)
    whole = np.round(sound * 32767).astype("<i2")
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(RATE)
        file.writeframes(whole.tobytes())
    return whole.astype(np.float32) / 32768


def written(begin: float, language: int, task: int) -> list[int]:
    """What the model is trained to write for the window that begins at a time.

    Two tones make a segment. Of a segment that goes on after the window only its beginning is written.
    """
    start, silence, timestamp = (
        TOKENS["decoder_start_token_id"],
        TOKENS["no_timestamps_token_id"] - 1,
        TOKENS["no_timestamps_token_id"] + 1,
    )
    length, ids = FRAMES / 100, []
    heard = [tone for tone in tones() if tone[0] >= begin - 0.01 and tone[0] < begin + length - 0.03]
    for first in range(0, len(heard), 2):
        pair = heard[first : first + 2]
        ids += [timestamp + round((pair[0][0] - begin) / 0.02), *(word for _, _, word in pair)]
        end = round((pair[-1][1] - begin) / 0.02)
        if end <= FRAMES // 2:
            ids.append(timestamp + end)
    if not heard:
        return [start, silence]
    return [start, language, task, *ids, TOKENS["eos_token_id"]]


def store_model(folder: Path, sound: np.ndarray) -> None:
    config = transformers.WhisperConfig(
        **SIZES, tie_word_embeddings=False, pad_token_id=20, bos_token_id=20, eos_token_id=20, decoder_start_token_id=21
    )
    torch.manual_seed(0)
    model = transformers.WhisperForConditionalGeneration(config).train()
    model.proj_out.weight = torch.nn.Parameter(torch.randn(SIZES["vocab_size"], SIZES["d_model"]) * 0.1)
    extractor = transformers.WhisperFeatureExtractor(feature_size=SIZES["num_mel_bins"])
    features = extractor(
        sound, sampling_rate=RATE, padding=False, truncation=False, return_tensors="pt"
    ).input_features[0]
    features = torch.nn.functional.pad(features, (0, FRAMES))
    begins = range(0, int(SECONDS * 100), 2)
    windows = torch.stack([features[:, begin : begin + FRAMES] for begin in begins])
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    draw = random.Random(0)
    languages, tasks = list(TOKENS["lang_to_id"].values()), list(TOKENS["task_to_id"].values())
    for _ in range(STEPS):
        rows = [written(begin / 100, languages[begin // 100 % 3], draw.choice(tasks)) for begin in begins]
        ids = torch.full((len(rows), max(map(len, rows))), -100)
        for row, tokens in zip(ids, rows, strict=True):
            row[: len(tokens)] = torch.tensor(tokens)
        logits = model(windows, decoder_input_ids=ids[:, :-1].clamp(min=0)).logits
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    model.save_pretrained(folder)
    write_json(folder / "generation_config.json", TOKENS)


def store_tokenizer(path: Path) -> None:
    """The words, and after them the special tokens and the timestamps."""
    tokenizer = Tokenizer(
        models.WordLevel({word: number for number, word in enumerate(WORDS.split())}, unk_token="zero")
    )
    languages, tasks = list(TOKENS["lang_to_id"]), [f"<|{task}|>" for task in TOKENS["task_to_id"]]
    special = ["<|endoftext|>", "<|startoftranscript|>", *languages, *tasks]
    special += ["<|startoflm|>", "<|startofprev|>", "<|nospeech|>", "<|notimestamps|>"]
    tokenizer.add_special_tokens(special)
    tokenizer.add_tokens([AddedToken(f"<|{step / 50:.2f}|>") for step in range(FRAMES // 2 + 1)])
    assert tokenizer.token_to_id("<|notimestamps|>") == TOKENS["no_timestamps_token_id"]
    assert tokenizer.get_vocab_size() == SIZES["vocab_size"]
    tokenizer.save(str(path))


def case(model: transformers.PreTrainedModel, sound: np.ndarray, number: int) -> dict[str, Any]:
    """A part of the sound, options of transformers' `generate`, and the segments that it gives: start, end, tokens."""
    draw = random.Random(number)
    begin = 320 * draw.randrange(100)
    end = begin + RATE * FRAMES // 100 if number % 4 == 0 else len(sound) - draw.randrange(3000)
    options: dict[str, Any] = {
        "language": draw.choice([None, "en", "de", "fr"]),
        "task": draw.choice(["transcribe", "translate"]),
    }
    options["return_timestamps"] = number % 8 != 4
    if number % 2:
        options |= {"no_speech_threshold": 0.6, "logprob_threshold": draw.choice([-1.0, -0.2, -0.1])}
    return {"begin": begin, "end": end, "options": options, **transcribed(model, sound[begin:end], options)}


def transcribed(model: transformers.PreTrainedModel, sound: np.ndarray, options: dict[str, Any]) -> dict[str, Any]:
    config = model.generation_config = transformers.GenerationConfig(**TOKENS, max_length=SIZES["max_target_positions"])
    extractor = transformers.WhisperFeatureExtractor(feature_size=SIZES["num_mel_bins"])
    features = extractor(sound, sampling_rate=RATE, padding=False, truncation=False, return_tensors="pt").input_features
    language = options["language"]
    if language is None:  # transformers gives no task after a language that it detects itself
        token = model.detect_language(features, generation_config=config, num_segment_frames=FRAMES).item()
        language = next(name[2:-2] for name, known in TOKENS["lang_to_id"].items() if known == token)
    with torch.no_grad():
        result = model.generate(
            features,
            **options | {"language": language},
            return_segments=True,
            condition_on_prev_tokens=False,
            temperature=0.0,
        )
    segments = [
        [round(float(s["start"]), 2), round(float(s["end"]), 2), s["tokens"].tolist()] for s in result["segments"][0]
    ]
    return {"language": language, "segments": segments}


def store_words(folder: Path, model: transformers.PreTrainedModel, sound: np.ndarray) -> None:
    """words.json: what tells when words are, of parts of the sound the times of tokens, and texts split into words."""
    heads = [[0, 1], [1, 0], [1, 3]]
    write = transformers.models.whisper.tokenization_whisper._combine_tokens_into_words
    extractor = transformers.WhisperFeatureExtractor(feature_size=SIZES["num_mel_bins"])
    times = []
    for begin, end in ((0, len(sound)), (6400, 12800), (16000, 30000)):
        features = extractor(sound[begin:end], sampling_rate=RATE, padding=False, truncation=False, return_tensors="pt")
        model.generation_config = transformers.GenerationConfig(
            **TOKENS, max_length=SIZES["max_target_positions"], alignment_heads=heads
        )
        with torch.no_grad():
            result = model.generate(
                features.input_features,
                attention_mask=torch.ones(1, features.input_features.shape[-1], dtype=torch.long),
                language="en",
                task="transcribe",
                return_timestamps=True,
                return_token_timestamps=True,
                return_segments=True,
                condition_on_prev_tokens=False,
                temperature=0.0,
            )
        lines = [
            [s["tokens"].tolist(), [round(t, 2) for t in s["token_timestamps"].tolist()]] for s in result["segments"][0]
        ]
        times.append({"begin": begin, "end": end, "segments": lines})
    split = []
    for language, pieces in TEXTS:
        tokenizer = Pieces(pieces)
        words, _, places = write(tokenizer, list(range(len(pieces))), language)
        split.append([language, pieces, words, places])
    (folder / "words.json").write_text(
        json.dumps({"alignment_heads": heads, "times": times, "split": split}) + "\n", encoding="utf-8"
    )


TEXTS = [
    (
        "english",
        [
            " Hel",
            "lo",
            ",",
            " wor",
            "ld",
            "!",
            ' "',
            "Yes",
            '"',
            " he",
            " said",
            "...",
            " 3",
            ".",
            "5",
            " (",
            "ok",
            ")",
        ],
    ),
    ("english", ["No", "-", "one", " said", " ", "\xc3", "\xa9", "t", "\xc3", "\xa9", " ¿", "Qué", "?", " -"]),
    ("japanese", ["\xe6", "\x9d", "\xb1", "京", "。", "です"]),
]
"""Texts as the pieces of tokens; a piece of one letter above 127 is a byte."""


class Pieces:
    """A tokenizer of these pieces."""

    eos_token_id = 1000

    def __init__(self, pieces: list[str]) -> None:
        self._pieces = pieces

    def decode(self, tokens: list[int], **_: Any) -> str:
        text = b"".join(
            piece.encode("latin-1") if len(piece) == 1 and 127 < ord(piece) < 256 else piece.encode()
            for piece in (self._pieces[token] for token in tokens)
        )
        return text.decode(errors="replace")


def rule(seed: int) -> dict[str, Any]:
    """Which of 30 tokens transformers' rules for timestamps leave possible after a text: 10 ends it, 20 is 0.00."""
    config = transformers.GenerationConfig(eos_token_id=10, no_timestamps_token_id=19, max_initial_timestamp_index=3)
    processor = transformers.WhisperTimeStampLogitsProcessor(config, begin_index=2)
    draw, written = random.Random(seed), list[int]()
    for _ in range(draw.randrange(9)):  # as the rules allow it: each token is one of the possible ones
        written.append(draw.choice(possible(processor, written, torch.zeros(30))))
    scale = draw.choice([0.5, 3.0])
    logits = torch.from_numpy(np.random.default_rng(seed).normal(size=30) * scale)
    return {"seed": seed, "scale": scale, "written": written, "possible": possible(processor, written, logits)}


def possible(
    processor: transformers.WhisperTimeStampLogitsProcessor, written: list[int], logits: torch.Tensor
) -> list[int]:
    processed = processor(torch.tensor([[11, 12, *written]]), logits[None])[0]
    tokens: list[int] = processed.isfinite().nonzero().flatten().tolist()
    return tokens
