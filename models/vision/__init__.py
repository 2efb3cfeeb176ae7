"""Models of images, one readable file each: classes, features, segments and depths.

`lucid.models.load` and users import the files. Models that read texts beside images are in `lucid.models` itself, and
reading image files does not belong here.
"""
