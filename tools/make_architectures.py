"""Write models/checkpoints/architectures.json: the classes that transformers has for each of our model types, as `architectures` names them.

Run with a Python that has transformers: ``python tools/make_architectures.py``. A class counts for a model type if it is
in the modeling file of that type, or in a mapping of its Auto classes, and is made from that type's config.
"""

from __future__ import annotations

import inspect
import json
import sys
from importlib import import_module
from pathlib import Path

import transformers
from transformers.models.auto import modeling_auto
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from lucid.models.checkpoints.families import MODEL_TYPES  # noqa: E402  # from this clone


def classes_of(kind: str) -> list[str]:
    """The names of transformers' classes that are made from the config of a model type."""
    config = CONFIG_MAPPING[kind]
    modeling = import_module(config.__module__.replace("configuration_", "modeling_"))
    classes = {
        name
        for name, value in vars(modeling).items()
        if inspect.isclass(value)
        and issubclass(value, transformers.PreTrainedModel)
        and value.__module__ == modeling.__name__
        and getattr(value, "config_class", None) is config
        and not name.endswith(("PreTrainedModel", "PretrainedModel", "Wrapper"))
        and not name.startswith("Pretrained")
    }
    for mapping, names in vars(modeling_auto).items():
        if mapping.startswith("MODEL") and mapping.endswith("_MAPPING_NAMES"):
            listed = names.get(kind, ())
            classes |= {listed} if isinstance(listed, str) else set(listed)
    others = {name for name in classes if getattr(vars(modeling).get(name), "config_class", config) is not config}
    classes -= others  # such as that of texts alone, which the config of a model that also reads images does not make
    return sorted(classes)


def main() -> None:
    kinds = sorted(kind for kind in MODEL_TYPES if kind in CONFIG_MAPPING)
    rows = ",\n".join(f'  "{kind}": {json.dumps(classes_of(kind))}' for kind in kinds)
    text = f'{{"transformers": "{transformers.__version__}", "classes": {{\n{rows}\n}}}}\n'
    (ROOT / "models" / "checkpoints" / "architectures.json").write_text(text)


if __name__ == "__main__":
    main()
