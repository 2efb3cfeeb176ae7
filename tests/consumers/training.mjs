// Trains by examples/browser/training.js in onnxruntime-web, and prints losses and weights, as JSON. The arguments: the
// folder of npm's packages, training.js, and a file with {step, inputs, steps}. The last step is one with NaN.
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { runInThisContext } from "node:vm";

const [packages, code, request] = process.argv.slice(2);
globalThis.ort = createRequire(`${packages}/`)("onnxruntime-web");
ort.env.wasm.numThreads = 1;
const Training = runInThisContext(`${readFileSync(code, "utf-8")}; Training`);
const { step, inputs: { vectors, labels }, steps } = JSON.parse(readFileSync(request, "utf-8"));
const inputs = {
  vectors: new ort.Tensor("float32", vectors.data, vectors.dims),
  labels: new ort.Tensor("int64", labels.data.map(BigInt), labels.dims),
};
const broken = new ort.Tensor("float32", vectors.data.map(() => NaN), vectors.dims);

const training = new Training(await ort.InferenceSession.create(Buffer.from(step, "base64"), { executionProviders: ["wasm"] }));
const losses = [];
while (training.steps < steps) losses.push(await training.step(inputs));
const error = await training.step({ ...inputs, vectors: broken }).catch(({ message }) => message);
const weights = Object.fromEntries(Object.entries(training.carried).map(([name, { data }]) => [name, [...data]]));
console.log(JSON.stringify({ losses, error, steps: training.steps, weights }));
