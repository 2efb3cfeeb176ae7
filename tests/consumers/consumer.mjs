// Loads folders with transformers.js, or files with onnxruntime-node, and prints what they compute, as JSON. Reads a list
// of requests from the file that its argument names; each is {kind, folder, ...}.
import { readFileSync } from "node:fs";
import * as ort from "onnxruntime-node";
import * as transformers from "@huggingface/transformers";

const { env, pipeline, Tensor } = transformers;
const { work, requests } = JSON.parse(readFileSync(process.argv[2], "utf-8"));
env.allowRemoteModels = false;
env.localModelPath = work;

const arrays = { int64: (data) => BigInt64Array.from(data.map(BigInt)), bool: Uint8Array.from.bind(Uint8Array), float32: Float32Array.from.bind(Float32Array) };
const tensor = ({ type, data, dims }) => new Tensor(type, arrays[type](data), dims);
const plainTensor = ({ type, data, dims }) => new ort.Tensor(type, type === "int64" ? data.map(BigInt) : data, dims);
const inputsOf = (request) => Object.fromEntries(Object.entries(request.inputs).map(([name, value]) => [name, tensor(value)]));
const plain = (value) => JSON.parse(JSON.stringify(value, (_, item) => (typeof item === "bigint" ? Number(item) : item)));

const answers = {
  // All outputs of a file by name, flat.
  async file(request) {
    const session = await ort.InferenceSession.create(`${work}/${request.folder}`);
    const inputs = Object.entries(request.inputs).map(([name, value]) => [name, plainTensor(value)]);
    const outputs = await session.run(Object.fromEntries(inputs));
    return plain(Object.fromEntries(Object.entries(outputs).map(([name, value]) => [name, [...value.data]])));
  },
  // The outputs of a model by name.
  async model(request) {
    const model = await transformers[request.class].from_pretrained(request.folder, request.options);
    const outputs = await model(inputsOf(request));
    return Object.fromEntries(request.outputs.map((name) => [name, plain(outputs[name].tolist())]));
  },
  // The tokens that a model writes.
  async tokens(request) {
    const model = await transformers[request.class].from_pretrained(request.folder, request.options);
    const found = await model.generate({ ...inputsOf(request), max_new_tokens: request.count, do_sample: false, eos_token_id: -1 });
    return plain(found.tolist());
  },
  // What a pipeline says.
  async pipeline(request) {
    const run = await pipeline(request.task, request.folder, request.options);
    const found = await run(...request.arguments);
    return plain(found.tolist ? found.tolist() : found);
  },
};

const found = [];
for (const request of requests) found.push(await answers[request.kind](request));
console.log(JSON.stringify(found));
