"""`quantize`: a model with quantized weights, and quantized inputs of its products, calibrated or not.

`lucid`, `export` and what stands above them import from it. Codes and their layout belong to `lucid.quantization`.
"""
