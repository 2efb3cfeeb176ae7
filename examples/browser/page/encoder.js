// Sentences to vectors and attention weights, by onnxruntime-web.
"use strict";

// Files come as scripts that hold base64: a page opened from a disk may load scripts, and nothing else.
function decoded(name) {
  const text = atob(lucidFiles[name]);
  const bytes = new Uint8Array(text.length);
  for (let i = 0; i < bytes.length; i++) bytes[i] = text.charCodeAt(i);
  delete lucidFiles[name];
  return bytes;
}

class Encoder {
  static async open() {
    ort.env.wasm.numThreads = 1; // more need headers that only a server can send
    ort.env.wasm.wasmBinary = decoded("ort.wasm");
    const loader = new Blob([decoded("ort.mjs")], { type: "text/javascript" });
    ort.env.wasm.wasmPaths = { mjs: URL.createObjectURL(loader) };
    const session = await ort.InferenceSession.create(decoded("model"), { executionProviders: ["wasm"] });
    const read = (name) => JSON.parse(new TextDecoder().decode(decoded(name)));
    const tokenizer = new lucidTokenizers.Tokenizer(read("tokenizer"), read("tokenizer_config"));
    return new Encoder(session, tokenizer, read("limits").max_length);
  }

  constructor(session, tokenizer, maxLength) {
    Object.assign(this, { session, tokenizer, maxLength });
  }

  // Ids and tokens of a sentence; one that is too long keeps its beginning and its last token, which ends it.
  cut(sentence) {
    const { ids, tokens } = this.tokenizer.encode(sentence);
    if (ids.length <= this.maxLength) return { ids, tokens, isCut: false };
    const shortened = (list) => [...list.slice(0, this.maxLength - 1), list.at(-1)];
    return { ids: shortened(ids), tokens: shortened(tokens), isCut: true };
  }

  // The vector (E), the tokens and the attention weights of each sentence.
  async encode(sentences) {
    const texts = sentences.map((sentence) => this.cut(sentence));
    const length = Math.max(...texts.map(({ ids }) => ids.length));
    const shape = [texts.length, length];
    const ids = new BigInt64Array(texts.length * length);
    const mask = new BigInt64Array(texts.length * length);
    texts.forEach((text, row) => text.ids.forEach((id, place) => {
      ids[row * length + place] = BigInt(id);
      mask[row * length + place] = 1n;
    }));
    const found = await this.session.run({
      input_ids: new ort.Tensor("int64", ids, shape),
      attention_mask: new ort.Tensor("int64", mask, shape),
    });
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
