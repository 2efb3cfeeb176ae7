// Images resized as Pillow resizes them, number by number.
"use strict";

const ONE = 2 ** 22; // the weight 1: sums of weighted bytes are whole numbers
const FILTERS = { 2: [1, bilinear], 3: [2, bicubic] }; // by Pillow's number: how far a filter reaches, and its weight

function bilinear(x) {
  return x < 1 ? 1 - x : 0;
}

function bicubic(x) {
  const a = -0.5;
  if (x < 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
  return x < 2 ? (((x - 5) * x + 8) * x - 4) * a : 0;
}

// Which old numbers, from `first` on, have which weights in the middle `count` of the new ones.
function resizingWeights(old, resized, count, resample) {
  const [reach, filter] = FILTERS[resample];
  const scale = old / resized, stretch = Math.max(scale, 1), support = stretch * reach;
  const start = Math.floor((resized - count) / 2);
  return Array.from({ length: count }, (_, i) => {
    const middle = (start + i + 0.5) * scale;
    const first = Math.max(0, Math.floor(middle - support + 0.5));
    const end = Math.min(old, Math.floor(middle + support + 0.5));
    const at = (j) => filter(Math.abs((first + j - middle + 0.5) * (1 / stretch)));
    const weights = Array.from({ length: end - first }, (_, j) => at(j));
    const sum = weights.reduce((a, b) => a + b, 0);
    return { first, weights: weights.map((weight) => Math.trunc((weight / sum) * ONE + (weight < 0 ? -0.5 : 0.5))) };
  });
}

function weightedSum(numbers, start, step, weights) {
  let sum = ONE / 2;
  for (let j = 0; j < weights.length; j++) sum += weights[j] * numbers[start + j * step];
  return Math.floor(sum / ONE); // what it is stored in cuts it to 0 to 255
}

// The middle (rows, columns, 3) of a resized image: the rows come to their width first, then the columns to their height.
function resizedImage({ data, width, height }, [newHeight, newWidth], [rows, columns], resample) {
  const across = resizingWeights(width, newWidth, columns, resample);
  const narrow = new Uint8ClampedArray(height * columns * 3);
  for (let y = 0, to = 0; y < height; y++) {
    for (const { first, weights } of across) {
      for (let c = 0; c < 3; c++) narrow[to++] = weightedSum(data, 4 * (y * width + first) + c, 4, weights);
    }
  }
  const pixels = new Uint8ClampedArray(rows * columns * 3), row = columns * 3;
  resizingWeights(height, newHeight, rows, resample).forEach(({ first, weights }, y) => {
    for (let x = 0; x < row; x++) pixels[y * row + x] = weightedSum(narrow, first * row + x, row, weights);
  });
  return pixels;
}
