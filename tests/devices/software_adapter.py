"""A GPU in software: Vulkan by SwiftShader, of the npm package in `package.json`.

python -m tests.devices.software_adapter     unpacks it
"""

from __future__ import annotations

import ctypes
import io
import os
import tarfile
from pathlib import Path

PACKED = Path(__file__).parent / "node_modules/@sparticuz/chromium/bin/swiftshader.tar.br"
FOLDER = Path(__file__).parent / "node_modules/.swiftshader"
DRIVERS = (
    "VK_DRIVER_FILES",
    "VK_ICD_FILENAMES",
)  # a new and an old name for files of drivers


def unpack() -> None:
    """Unpack the driver and Vulkan's loader."""
    import brotli  # noqa: PLC0415  # only in the environment of `make test-webgpu`

    with tarfile.open(fileobj=io.BytesIO(brotli.decompress(PACKED.read_bytes()))) as archive:
        archive.extractall(FOLDER, filter="data")


def use() -> None:
    """Make it the adapter of this process, if it is unpacked and no other driver is named.

    The loader is loaded here, by its path, as a machine need not have one.
    """
    if FOLDER.exists() and not any(os.environ.get(name) for name in DRIVERS):
        ctypes.CDLL(str(FOLDER / "libvulkan.so.1"), mode=ctypes.RTLD_GLOBAL)
        os.environ.update(dict.fromkeys(DRIVERS, str(FOLDER / "vk_swiftshader_icd.json")))


if __name__ == "__main__":
    unpack()
