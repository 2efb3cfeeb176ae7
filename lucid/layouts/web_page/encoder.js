// Sentences to vectors and attention weights.
"use strict";

class Encoder extends TextModel {
  // The vector (E), the tokens and the attention weights of each sentence.
  async encode(sentences) {
    const { texts, length, found } = await this.run(sentences);
    const width = found.sentence_embedding.dims[1];
    const layers = Object.keys(found).length - 1;
    const heads = found["attentions.0"]?.dims[1];
    return texts.map((text, row) => ({
      ...text,
      layers,
      heads,
      vector: found.sentence_embedding.data.slice(row * width, (row + 1) * width),
      // How much token `from` takes from token `to`, in one head.
      weight: (layer, head, from, to) =>
        found[`attentions.${layer}`].data[((row * heads + head) * length + from) * length + to],
    }));
  }
}
