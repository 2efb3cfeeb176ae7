// Two labels, learnt from sentences, and the answer for a new sentence.
"use strict";

const STEPS = 40;
const KEPT = `what ${location.pathname} has learnt`; // in the browser's storage

class Learner {
  constructor(page) {
    const named = (id) => document.getElementById(id);
    this.page = page;
    this.labels = [named("label-0"), named("label-1")];
    this.examples = [named("examples-0"), named("examples-1")];
    this.question = named("question");
    this.status = named("learnt");
    this.answer = named("answer");
    this.losses = []; // of the last training
    named("learn").addEventListener("click", () => this.#queue(() => this.#learn()));
    this.question.addEventListener("input", () => this.#queue(() => this.#classify()));
  }

  async open() {
    this.session = await ort.InferenceSession.create(decoded("step"), { executionProviders: ["wasm"] });
    document.getElementById("learn").disabled = false;
    const kept = JSON.parse(localStorage.getItem(KEPT));
    if (!kept) return;
    [...this.labels, ...this.examples].forEach((field, i) => { field.value = kept.typed[i]; });
    this.weights = { weight: { data: kept.weight }, bias: { data: kept.bias } };
    this.status.textContent = "Learnt on an earlier visit.";
    this.#queue(() => this.#classify());
  }

  #keep({ weight, bias }) {
    const typed = [...this.labels, ...this.examples].map(({ value }) => value);
    localStorage.setItem(KEPT, JSON.stringify({ typed, weight: [...weight.data], bias: [...bias.data] }));
  }

  // A session computes one batch at a time.
  #queue(job) {
    const failed = (error) => { this.status.textContent = `This browser could not compute it: ${error.message ?? error}`; };
    this.page.queue = this.page.queue.then(job).catch(failed);
  }

  async #vector(sentence) {
    return (await this.page.encoder.encode([sentence]))[0].vector;
  }

  async #learn() {
    const lines = this.examples.map(({ value }) => value.split("\n").map((line) => line.trim()).filter(Boolean));
    if (lines.some(({ length }) => !length)) {
      this.status.textContent = "Type sentences for both labels.";
      return;
    }
    const start = performance.now();
    const vectors = [];
    for (const sentence of lines.flat()) vectors.push(await this.#vector(sentence));
    const labels = lines.flatMap((sentences, label) => sentences.map(() => BigInt(label)));
    const inputs = {
      vectors: new ort.Tensor("float32", vectors.flatMap((vector) => [...vector]), [vectors.length, vectors[0].length]),
      labels: new ort.Tensor("int64", labels, [labels.length]),
    };
    const training = new Training(this.session);
    this.losses = [];
    while (training.steps < STEPS) this.losses.push(await training.step(inputs));
    this.weights = training.carried;
    const [first, last] = [this.losses[0], this.losses.at(-1)].map((loss) => loss.toFixed(3));
    const took = Math.round(performance.now() - start);
    this.status.textContent = `${labels.length} sentences learnt in ${took} ms: after ${STEPS} steps the loss is ${last} instead of ${first}`;
    await this.#classify();
    this.#keep(this.weights);
  }

  async #classify() {
    const sentence = this.question.value.trim();
    if (!this.weights || !sentence) return;
    const vector = await this.#vector(sentence);
    const { weight, bias } = this.weights;
    const logits = this.labels.map((_, label) =>
      vector.reduce((sum, value, i) => sum + value * weight.data[label * vector.length + i], bias.data[label]));
    const scores = logits.map((logit) => Math.exp(logit - Math.max(...logits)));
    const sum = scores.reduce((total, score) => total + score);
    this.answer.textContent = this.labels.map(({ value }, i) => `${value} ${Math.round((100 * scores[i]) / sum)} %`).join(", ");
  }
}

const lucidLearner = new Learner(lucidPage);
lucidPage.opening.then(() => lucidLearner.open()).catch(failed);
