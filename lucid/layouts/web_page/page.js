// What is typed, encoded and shown.
"use strict";

const MOST_SENTENCES = 16;
const PAUSE = 300; // milliseconds without a key before what was typed is encoded

function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

class Page {
  constructor() {
    const named = (id) => document.getElementById(id);
    this.typed = named("sentences");
    this.status = named("status");
    this.table = named("similarities");
    this.choices = { sentence: named("sentence"), layer: named("layer"), head: named("head") };
    this.map = new AttentionMap(named("map"), named("weight"));
    for (const choice of Object.values(this.choices)) choice.addEventListener("change", () => this.showMap());
    this.encoded = []; // sentences, as the encoder gives them
    this.latest = 0; // number of the newest text; earlier ones are not shown any more
    this.queue = Promise.resolve(); // a session runs one batch at a time
  }

  async open() {
    this.status.textContent = "Opening the model …";
    const start = performance.now();
    this.encoder = await Encoder.open();
    this.opened = `the model was opened in ${((performance.now() - start) / 1000).toFixed(1)} s`;
    let waiting;
    this.typed.addEventListener("input", () => {
      clearTimeout(waiting);
      waiting = setTimeout(() => this.encode(), PAUSE);
    });
    await this.encode();
  }

  encode() {
    const number = ++this.latest;
    this.queue = this.queue.then(() => (number === this.latest ? this.#encode() : null)).catch(failed);
    return this.queue;
  }

  async #encode() {
    const lines = this.typed.value.split("\n").map((line) => line.trim()).filter(Boolean);
    const sentences = lines.slice(0, MOST_SENTENCES);
    const start = performance.now();
    this.encoded = sentences.length ? await this.encoder.encode(sentences) : [];
    const took = Math.round(performance.now() - start);
    const cut = this.encoded.flatMap(({ isCut }, i) => (isCut ? [i + 1] : []));
    const notes = [`${sentences.length} sentences in ${took} ms`, this.opened];
    if (lines.length > sentences.length) notes.push(`only the first ${MOST_SENTENCES} lines are read`);
    if (cut.length) notes.push(`cut to ${this.encoder.maxLength} tokens: ${cut.join(", ")}`);
    this.status.textContent = sentences.length ? notes.join("; ") : "Type a sentence.";
    this.#showSimilarities(sentences);
    this.#fillChoices(sentences);
    this.showMap();
  }

  #showSimilarities(sentences) {
    const numbers = sentences.map((_, i) => element("th", { scope: "col" }, String(i + 1)));
    const rows = this.encoded.map((one, i) => {
      const cells = this.encoded.map((other) => {
        const value = cosine(one.vector, other.vector);
        const cell = element("td", {}, value.toFixed(2));
        cell.style.setProperty("--weight", Math.max(0, value));
        return cell;
      });
      return element("tr", {}, element("th", { scope: "row" }, element("span", {}, `${i + 1} ${sentences[i]}`)), ...cells);
    });
    this.table.replaceChildren(element("thead", {}, element("tr", {}, element("td"), ...numbers)), element("tbody", {}, ...rows));
  }

  #fillChoices(sentences) {
    const [first] = this.encoded;
    if (!first) return;
    document.getElementById("attention").hidden = !first.layers;
    const counted = (count) => Array.from({ length: count }, (_, i) => [i, String(i + 1)]);
    this.#fill(this.choices.sentence, sentences.map((sentence, i) => [i, `${i + 1} ${sentence}`]));
    this.#fill(this.choices.layer, counted(first.layers));
    this.#fill(this.choices.head, [["mean", "mean of all"], ...counted(first.heads)]);
  }

  // Options of a choice; what was chosen stays so where it still is one.
  #fill(choice, options) {
    const chosen = choice.value;
    choice.replaceChildren(...options.map(([value, text]) => element("option", { value }, text)));
    if (options.some(([value]) => String(value) === chosen)) choice.value = chosen;
  }

  showMap() {
    const { sentence, layer, head } = this.choices;
    const text = this.encoded[Number(sentence.value)];
    if (text?.layers) this.map.show(text, Number(layer.value), head.value === "mean" ? "mean" : Number(head.value));
    else this.map.table.replaceChildren();
  }
}

function failed(error) {
  document.getElementById("status").textContent = `This browser could not run the model: ${error.message ?? error}`;
}

const lucidPage = new Page();
lucidPage.opening = lucidPage.open();
lucidPage.opening.catch(failed);
