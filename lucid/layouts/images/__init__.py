"""A checkpoint's preprocessor of images as part of its model, which then takes decoded images.

`layouts`, `batch` and `cli` import from it. Decoding image files belongs to `lucid.batch`.

::

    preprocessor = lucid.layouts.images.Preprocessor.from_folder("vit-base-patch16-224")
    pixels = preprocessor(lucid.tensor(images))  # (N, H, W, 3) uint8 to (N, 3, 224, 224), as Pillow resizes
"""

from lucid.core.words import package_names as _public
from lucid.layouts.images.preprocessor import IMAGES as IMAGES
from lucid.layouts.images.preprocessor import NotExactError as NotExactError
from lucid.layouts.images.preprocessor import Preprocessor as Preprocessor
from lucid.layouts.images.preprocessor import with_preprocessor as with_preprocessor

__all__ = _public.offered(globals())
__dir__ = __all__.copy
