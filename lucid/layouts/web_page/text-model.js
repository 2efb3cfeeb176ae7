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
    return new this(session, tokenizer, read("about"));
  }

  constructor(session, tokenizer, { max_length, labels, task }) {
    const special = [...tokenizer.get_added_tokens_decoder().values()].map(({ content }) => content);
    const mask = special.find((token) => /^[[<]mask[>\]]$/i.test(token));
    Object.assign(this, { session, tokenizer, maxLength: max_length ?? Infinity, labels, task, mask });
  }

  label(i) {
    return this.labels[i] ?? `LABEL_${i}`;
  }

  // Ids and tokens of a text, or of it and a second one, which begins at the place `second`. One that is too long keeps
  // its beginning and its last token, which ends it.
  cut(text, after) {
    const encode = (options) => this.tokenizer.encode(text, { ...options, return_token_type_ids: true });
    const { ids, tokens, token_type_ids: types } = encode(after ? { text_pair: after } : {});
    const isCut = ids.length > this.maxLength;
    const shortened = (list) => (isCut ? [...list.slice(0, this.maxLength - 1), list.at(-1)] : list);
    const second = after ? encode().ids.length : ids.length;
    return { ids: shortened(ids), tokens: shortened(tokens), types: shortened(types), second, isCut };
  }

  // The outputs for texts, each with a second one if there is one, padded to the longest, with the length that they
  // have then.
  async run(typed, after) {
    const texts = typed.map((text) => this.cut(text, after));
    const length = Math.max(...texts.map(({ ids }) => ids.length));
    const shape = [texts.length, length];
    const ids = new BigInt64Array(texts.length * length);
    const mask = new BigInt64Array(texts.length * length);
    const types = new BigInt64Array(texts.length * length);
    texts.forEach((text, row) => text.ids.forEach((id, place) => {
      ids[row * length + place] = BigInt(id);
      mask[row * length + place] = 1n;
      types[row * length + place] = BigInt(text.types[place]);
    }));
    const arrays = { input_ids: ids, attention_mask: mask, token_type_ids: types };
    const feeds = this.session.inputNames.map((name) => [name, new ort.Tensor("int64", arrays[name], shape)]);
    const found = await this.session.run(Object.fromEntries(feeds));
    return { texts, length, found };
  }
}
