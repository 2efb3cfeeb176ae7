"""From a sound to text around a model: WAV files, resampling, features, transcription, rules of tokens.

Models of speech import from it. The networks themselves do not belong here.
"""
