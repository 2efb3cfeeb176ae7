// Sentences to vectors and attention weights.
"use strict";

class Encoder extends TextModel {
  // The vector (E), the tokens and the attention weights of each sentence.
  async encode(sentences) {
    const { texts, length, found } = await this.run(sentences);
    const width = found.sentence_embedding.dims[1];
    const [, layers, heads] = found.attentions.dims;
    const weights = found.attentions.data;
    return texts.map((text, row) => ({
      ...text,
      layers,
      heads,
      vector: found.sentence_embedding.data.slice(row * width, (row + 1) * width),
      // How much token `from` takes from token `to`, in one head.
      weight: (layer, head, from, to) =>
        weights[(((row * layers + layer) * heads + head) * length + from) * length + to],
    }));
  }
}

// Vectors have length 1.
function cosine(a, b) {
  return a.reduce((sum, x, i) => sum + x * b[i], 0);
}
