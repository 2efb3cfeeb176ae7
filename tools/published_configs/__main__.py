"""Hold the option sets of published checkpoints to transformers, and write what they answer.

    python -m tools.published_configs freeze                writes tests/goldens/published/answers.json and the page
    python -m tools.published_configs freeze NAME ...       only these sets, the others as they are
    python -m tools.published_configs changes               tries one-option changes of all model types, and writes
                                                            tests/goldens/published/changes.json and the page
    python -m tools.published_configs changes bert t5       of these, the others as they are

Needs torch and transformers. Each set becomes a tiny model with the same options. `freeze` requires that transformers
answers bit for bit the same with and without the options that Lucid ignores, and Lucid within 2e-5 of it; `changes` that no
change makes Lucid answer something else. To look at what people deploy, add option sets to configs.json and run both.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from typing import Any

import numpy as np
import torch
import transformers

from lucid.models.checkpoints.families import MODEL_TYPES
from tests.published import NEEDED, ROOT, inputs_of, option_sets, sample, tiny
from tools.make_published_page import main as make_page
from tools.published_configs.changes import TOLERANCE, findings
from tools.published_configs.reference import Refused, difference, ours, theirs


def frozen(options: dict[str, Any]) -> tuple[dict[str, Any], dict[str, tuple[int, ...]]]:
    """What the answer file says of an option set, and the weights of its tiny model."""
    if options["model_type"] not in MODEL_TYPES:
        return {"refused": f"option model_type is {options['model_type']!r}"}, {}
    small = tiny(options)
    try:
        answer = theirs(small)
        shapes = answer.shapes
    except Refused as error:
        answer, shapes, why = None, theirs(tiny({"model_type": options["model_type"]})).shapes, str(error)
    try:
        output, ignored = ours(small, shapes)
    except Refused as error:
        return {"refused": str(error).split("; if you")[0]}, shapes
    if answer is None:
        raise SystemExit(f"Lucid takes what transformers refuses: {why}")
    if (gap := difference(output, answer.output)) > TOLERANCE:
        raise SystemExit(f"differs by {gap:.1e}")
    without = {name: value for name, value in small.items() if name not in ignored}
    for name in ignored:
        place, _, inner = name.partition(".")
        if inner:
            without[place] = {key: value for key, value in without[place].items() if f"{place}.{key}" not in ignored}
    if not np.array_equal(theirs(without, inputs_of(small)).output, answer.output):
        raise SystemExit(f"transformers answers something else without {', '.join(ignored)}")
    return {"ignored": list(ignored), "sample": sample(answer.output)}, shapes


def freeze(names: list[str]) -> None:
    """Write the answers of option sets."""
    path = ROOT / "answers.json"
    earlier = json.loads(path.read_text("utf-8")) if names else {"sets": {}, "shapes": []}
    known = [tuple(sorted((name, tuple(shape)) for name, shape in shapes.items())) for shapes in earlier["shapes"]]
    answers: dict[str, Any] = earlier["sets"]
    for name, options in option_sets().items():
        if names and name not in names:
            continue
        try:
            answer, shapes = frozen(options)
        except SystemExit as error:
            raise SystemExit(f"{name}: {error}") from None
        key = tuple(sorted(shapes.items()))
        if key not in known:
            known.append(key)
        answers[name] = {"shapes": known.index(key), **answer}
    lines = [
        f'"transformers": {json.dumps(transformers.__version__)}',
        f'"torch": {json.dumps(torch.__version__.split("+")[0])}',
        '"shapes": [\n' + ",\n".join(json.dumps(dict(shapes)) for shapes in known) + "\n]",
        '"sets": {\n' + ",\n".join(f"{json.dumps(k)}: {json.dumps(v)}" for k, v in answers.items()) + "\n}",
    ]
    path.write_text("{" + ",\n".join(lines) + "}\n", "utf-8")
    make_page()


def change(kinds: list[str]) -> None:
    """Try changes of model types, say what is wrong, and write how many there were of each verdict."""
    path = ROOT / "changes.json"
    wrong = 0
    for kind in kinds or MODEL_TYPES:
        verdicts: Counter[str] = Counter()
        for finding in findings({"model_type": kind, **NEEDED.get(kind, {})}):
            verdicts[finding.verdict] += 1
            if finding.verdict == "WRONG":
                print(f"{kind}: {finding.option} = {finding.value!r}: {finding.detail}")
        print(f"{kind}: {', '.join(f'{n} {verdict}' for verdict, n in sorted(verdicts.items()))}", flush=True)
        wrong += verdicts["WRONG"]
        types = json.loads(path.read_text("utf-8"))["types"] | {kind: dict(sorted(verdicts.items()))}
        lines = [f"  {json.dumps(known)}: {json.dumps(types[known])}" for known in MODEL_TYPES if known in types]
        about = f' "transformers": {json.dumps(transformers.__version__)},\n "types": {{\n'
        path.write_text("{\n" + about + ",\n".join(lines) + "\n }\n}\n", "utf-8")
    make_page()
    raise SystemExit(int(wrong > 0))


def main(arguments: list[str]) -> None:
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    commands = {"freeze": freeze, "changes": change}
    if not arguments or arguments[0] not in commands:
        raise SystemExit(__doc__)
    commands[arguments[0]](arguments[1:])


if __name__ == "__main__":
    main(sys.argv[1:])
