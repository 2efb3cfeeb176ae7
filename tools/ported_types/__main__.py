"""transformers' own modeling files with only their imports changed: for how many model types does Lucid compute what torch does?

    python -m tools.ported_types FOLDER reference [TYPE ...]     small random models in torch, stored in the folder
    python -m tools.ported_types FOLDER port [all | failed | TYPE ...]     the same files with Lucid, compared with them

Needs torch and transformers 5. Both go on where they stopped; results are in FOLDER/results.json.
"""

from __future__ import annotations

import json
import os
import resource
import select
import signal
import sys
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

SECONDS = 90
PAGE = Path(__file__).parents[2] / "tests" / "goldens" / "ported_types.json"
REASONS = {
    "never changed in place": "a tensor is changed in place",
    "no integer value": "a loop over a size",
    "known only at run time": "a branch on a size that its limits do not decide",
    "complex": "complex numbers",
    "has no attribute": "an absent name",
    "is absent": "an absent name",
    "cannot import": "an absent name",
}


def reason(result: dict[str, Any]) -> str:
    """ "exact", or what stopped a type."""
    error = result.get("error", result["stage"])
    if result["stage"] == "exact":
        return "exact"
    return next((text for words, text in REASONS.items() if words in error), "another error")


def apart(call: Callable[[], dict[str, Any]], seconds: int = SECONDS) -> dict[str, Any]:
    """What a call returns in a process of its own, with limits of time and memory."""
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        os.close(reader)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
        try:
            result = call()
        except BaseException as error:  # noqa: BLE001
            result = {"stage": "build", "error": f"{type(error).__name__}: {str(error)[:300]}"}
        os.write(writer, json.dumps(result).encode()[:60_000])
        os._exit(0)
    os.close(writer)
    ready, _, _ = select.select([reader], [], [], seconds)
    text = os.read(reader, 65_536) if ready else b""
    if not text:
        os.kill(child, signal.SIGKILL)
    os.close(reader)
    os.waitpid(child, 0)
    return json.loads(text) if text else {"stage": "build", "error": "out of time"}


def main(folder: Path, what: str, chosen: list[str]) -> None:
    folder.mkdir(exist_ok=True, parents=True)
    path = folder / ("results.json" if what == "port" else "reference.json")
    results = json.loads(path.read_text()) if path.exists() else {}
    if what == "reference":
        import torch

        import tools.ported_types.reference as reference

        torch.set_num_threads(1)
        names = chosen or [name for name in reference.types() if name not in results]

        def call(name: str) -> dict[str, Any]:
            reference.store(name, folder / name)
            return {"stage": "stored"}

    else:
        import tools.ported_types.port as port

        port.preload()
        stored = sorted(path.parent.name for path in folder.glob("*/facts.json"))
        some = {"all": stored, "failed": [n for n in stored if results.get(n, {}).get("stage") != "exact"]}
        names = some.get(chosen[0], chosen) if chosen else [name for name in stored if name not in results]

        def call(name: str) -> dict[str, Any]:
            return port.tried(folder / name)

    for name in names:
        before = results.get(name, {}).get("stage")
        results[name] = apart(partial(call, name))
        if (len(chosen) == 1 and chosen[0] not in ("all", "failed")) or results[name]["stage"] != before:
            print(name, before, "->", json.dumps(results[name]), flush=True)
        path.write_text(json.dumps(results, indent=1, sort_keys=True) + "\n")
        if what == "port" and set(results) >= set(stored):
            page = json.loads(PAGE.read_text()) | {name: reason(results[name]) for name in stored}
            PAGE.write_text(json.dumps(page, indent=1, sort_keys=True) + "\n")
    print(len(results), dict(Counter(result["stage"] for result in results.values())))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3:])
