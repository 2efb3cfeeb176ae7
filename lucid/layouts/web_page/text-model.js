// A model that reads texts, in onnxruntime-web.
"use strict";

// Files come as scripts that hold base64: a page opened from a disk may load scripts, and nothing else.
function decoded(name) {
  const text = atob(lucidFiles[name]);
  const bytes = new Uint8Array(text.length);
  for (let i = 0; i < bytes.length; i++) bytes[i] = text.charCodeAt(i);
  delete lucidFiles[name];
  return bytes;
}

class TextModel {
  static async open() {
    ort.env.wasm.numThreads = 1; // more need headers that only a server can send
    ort.env.wasm.wasmBinary = decoded("ort.wasm");
    const loader = new Blob([decoded("ort.mjs")], { type: "text/javascript" });
    ort.env.wasm.wasmPaths = { mjs: URL.createObjectURL(loader) };
    const session = await ort.InferenceSession.create(decoded("model"), { executionProviders: ["wasm"] });
    const read = (name) => JSON.parse(new TextDecoder().decode(decoded(name)));
    const tokenizer = new lucidTokenizers.Tokenizer(read("tokenizer.json"), read("tokenizer_config.json"));
    const { max_length, labels } = read("about");
    return new this(session, tokenizer, max_length ?? Infinity, labels);
  }

  constructor(session, tokenizer, maxLength, labels) {
    Object.assign(this, { session, tokenizer, maxLength, labels });
  }

  // Ids and tokens of a text; one that is too long keeps its beginning and its last token, which ends it.
  cut(text) {
    const { ids, tokens } = this.tokenizer.encode(text);
    if (ids.length <= this.maxLength) return { ids, tokens, isCut: false };
    const shortened = (list) => [...list.slice(0, this.maxLength - 1), list.at(-1)];
    return { ids: shortened(ids), tokens: shortened(tokens), isCut: true };
  }

  // The outputs for texts, padded to the longest, with the length that they have then.
  async run(typed) {
    const texts = typed.map((text) => this.cut(text));
    const length = Math.max(...texts.map(({ ids }) => ids.length));
    const shape = [texts.length, length];
    const ids = new BigInt64Array(texts.length * length);
    const mask = new BigInt64Array(texts.length * length);
    texts.forEach((text, row) => text.ids.forEach((id, place) => {
      ids[row * length + place] = BigInt(id);
      mask[row * length + place] = 1n;
    }));
    const arrays = { input_ids: ids, attention_mask: mask, token_type_ids: new BigInt64Array(ids.length) };
    const feeds = this.session.inputNames.map((name) => [name, new ort.Tensor("int64", arrays[name], shape)]);
    const found = await this.session.run(Object.fromEntries(feeds));
    return { texts, length, found };
  }
}
