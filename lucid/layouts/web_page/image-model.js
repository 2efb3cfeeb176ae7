// A model that reads images, prepared as preprocessor_config.json says.
"use strict";

class ImageModel extends OpenedModel {
  // The outputs for a decoded image.
  async run(image) {
    const { window } = this.about.preprocessor;
    const pixels = preparedPixels(image, this.about.preprocessor);
    const found = await this.session.run({ pixel_values: new ort.Tensor("float32", pixels, [1, 3, ...window]) });
    return { found };
  }
}

// The numbers (height, width, 4) of an image file, upright, without its colour profile.
async function decodedImage(file) {
  const bitmap = await createImageBitmap(file, { colorSpaceConversion: "none", premultiplyAlpha: "none" });
  const context = new OffscreenCanvas(bitmap.width, bitmap.height).getContext("2d", { willReadFrequently: true });
  context.drawImage(bitmap, 0, 0);
  return context.getImageData(0, 0, bitmap.width, bitmap.height);
}

// The pixels (3, height, width) of a decoded image, in float32.
function preparedPixels(image, { window, edge, resized, resample, factor, mean, deviation }) {
  const { width, height } = image, shorter = Math.min(width, height);
  const size = edge === null ? resized : [height, width].map((side) => Math.floor((side * edge) / shorter));
  const bytes = resizedImage(image, size, window, resample);
  const scaled = (byte) => (factor === null ? byte : Math.fround(byte * Math.fround(factor)));
  const normal = (value, c) => (mean === null ? value : Math.fround(value - mean[c]) / deviation[c]);
  const tables = [0, 1, 2].map((c) => Float32Array.from({ length: 256 }, (_, byte) => normal(scaled(byte), c)));
  const places = bytes.length / 3;
  return Float32Array.from({ length: bytes.length }, (_, i) => {
    const c = Math.floor(i / places);
    return tables[c][bytes[(i - c * places) * 3 + c]];
  });
}
