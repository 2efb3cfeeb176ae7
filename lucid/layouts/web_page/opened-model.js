// A model in onnxruntime-web, and what the page knows about it.
"use strict";

// Files come as scripts that hold base64: a page opened from a disk may load scripts, and nothing else.
function decoded(name) {
  const text = atob(lucidFiles[name]);
  const bytes = new Uint8Array(text.length);
  for (let i = 0; i < bytes.length; i++) bytes[i] = text.charCodeAt(i);
  delete lucidFiles[name];
  return bytes;
}

function decodedJson(name) {
  return JSON.parse(new TextDecoder().decode(decoded(name)));
}

class OpenedModel {
  static async open() {
    ort.env.wasm.numThreads = 1; // more need headers that only a server can send
    ort.env.wasm.wasmBinary = decoded("ort.wasm");
    const loader = new Blob([decoded("ort.mjs")], { type: "text/javascript" });
    ort.env.wasm.wasmPaths = { mjs: URL.createObjectURL(loader) };
    const session = await ort.InferenceSession.create(decoded("model"), { executionProviders: ["wasm"] });
    return new this(session, decodedJson("about"));
  }

  constructor(session, about) {
    Object.assign(this, { session, about, task: about.task });
  }

  label(i) {
    return this.about.labels[i] ?? `LABEL_${i}`;
  }
}

function cosine(a, b) {
  const product = (x, y) => x.reduce((sum, value, i) => sum + value * y[i], 0);
  return product(a, b) / Math.sqrt(product(a, a) * product(b, b));
}
