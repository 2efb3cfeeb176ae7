"""The packages of the wheel: those of `lucid/`, and `models/` as `lucid.models`. pyproject.toml has all the rest."""

from setuptools import find_namespace_packages, setup

FOUND = find_namespace_packages(include=["lucid", "lucid.*", "models", "models.*"], exclude=["*.__pycache__"])

setup(
    packages=[name if name.startswith("lucid") else f"lucid.{name}" for name in FOUND],
    package_dir={"lucid.models": "models"},
)
