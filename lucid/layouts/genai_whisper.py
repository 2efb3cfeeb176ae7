"""Whisper in folders for onnxruntime-genai: an encoder, a decoder over a growing cache, and how sound becomes features.

onnxruntime-genai reads a sound file itself, and gives the encoder 30 seconds of it. Its features are those of
`audio_processor_config.json` here, which describes the ones that Whisper was trained on (Radford et al. 2022).
"""

from __future__ import annotations

import json

from lucid.layouts.genai_plan import Plan, stack_section
from lucid.layouts.parts import with_last_logits
from lucid.models.whisper import Whisper
from lucid.nn.model_parts import CacheKind

_ENCODER, _DECODER, _SOUND = "encoder.onnx", "decoder.onnx", "audio_processor_config.json"
_POSITIONS = 1500  # of the encoder in 30 seconds: onnxruntime-genai takes no other number
_WINDOW, _HOP, _SECONDS = 400, 160, 30  # samples of a Fourier transform, and from one to the next, at 16 kHz


def plan_whisper(whisper: Whisper, cache: CacheKind | None) -> Plan:
    """The plan for Whisper.

    Raises:
        ValueError: for a fixed cache, or another number of positions than those of 30 seconds.
    """
    config, shape = whisper.config, whisper.cache_shape
    if cache == "fixed":
        raise ValueError("cache='fixed': onnxruntime-genai runs Whisper over a growing cache; use cache='growing'")
    if config.max_source_positions != _POSITIONS:
        raise ValueError(
            f"the encoder has {config.max_source_positions} positions, onnxruntime-genai runs a Whisper with "
            f"{_POSITIONS}, those of {_SECONDS} seconds"
        )
    own, sound = "past_key_values.%d.decoder", "past_key_values.%d.encoder"
    decoder = stack_section(
        _DECODER,
        shape,
        {
            "input_ids": "input_ids",
            "past_key_names": f"{own}.key",
            "past_value_names": f"{own}.value",
            "cross_past_key_names": f"{sound}.key",
            "cross_past_value_names": f"{sound}.value",
        },
        {
            "logits": "logits",
            "present_key_names": "present.%d.decoder.key",
            "present_value_names": "present.%d.decoder.value",
        },
    )
    encoder = stack_section(
        _ENCODER,
        shape,
        {"audio_features": "input_features"},
        {
            "encoder_hidden_states": "last_hidden_state",
            "cross_present_key_names": "present.%d.encoder.key",
            "cross_present_value_names": "present.%d.encoder.value",
        },
    )
    encoder |= {"hidden_size": whisper.encoder_width, "num_attention_heads": shape.kv_heads}
    step = with_last_logits(whisper.part("decoder", "growing"), whisper)
    return Plan(
        kind="whisper",
        parts={_ENCODER: whisper.part("encoder", "growing"), _DECODER: step},
        sections={
            "encoder": encoder,
            "decoder": {**decoder, "num_attention_heads": shape.kv_heads},
            "speech": {"config_filename": _SOUND},
        },
        positions=config.max_target_positions,
        files={_SOUND: json.dumps(_features(config.num_mel_bins), indent=2).encode()},
    )


def _features(mels: int) -> dict[str, object]:
    """How onnxruntime-genai makes the logarithm of a mel spectrogram of a sound file."""
    frame = {"n_fft": _WINDOW, "hop_length": _HOP}
    steps: list[dict[str, object]] = [
        {"name": "audio_decoder", "type": "AudioDecoder"},
        {"name": "STFT", "type": "STFTNorm", "attrs": {**frame, "frame_length": _WINDOW}},
        {
            "name": "log_mel_spectrogram",
            "type": "LogMelSpectrum",
            "attrs": {**frame, "n_mel": mels, "chunk_size": _SECONDS},
        },
    ]
    return {"feature_extraction": {"sequence": [{"operation": step} for step in steps]}}
