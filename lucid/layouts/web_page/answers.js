// What a model says of a text, by its task: lines with their shares, from its outputs.
"use strict";

const MOST_GUESSES = 5, MOST_TOKENS = 30; // of a gap; of an answer

function shares(logits) {
  const most = logits.reduce((a, b) => Math.max(a, b), -Infinity);
  const powers = Array.from(logits, (logit) => Math.exp(logit - most));
  const sum = powers.reduce((a, b) => a + b);
  return powers.map((power) => power / sum);
}

// Softmax over each row of logits (1, L, labels).
function rows({ data, dims }) {
  const [, length, width] = dims;
  return Array.from({ length }, (_, row) => shares(data.slice(row * width, (row + 1) * width)));
}

function best(list, count) {
  return [...list.keys()].sort((a, b) => list[b] - list[a]).slice(0, count);
}

const TASKS = {
  "text-classification": {
    asks: "A text to classify",
    example: () => "I like this very much.",
    lines: (model, { found }) => shares(found.logits.data).map((share, i) => [model.label(i), share]),
  },
  "token-classification": {
    asks: "A text whose words get labels",
    example: () => "Ada Lovelace was born in London.",
    lines: (model, { texts, found }) => rows(found.logits).map((row, place) => {
      const [label] = best(row, 1);
      return [`${texts[0].tokens[place]} ${model.label(label)}`, row[label]];
    }),
  },
  "fill-mask": {
    asks: "A text with a gap",
    example: (model) => `Paris is the ${model.mask} of France.`,
    advice: (model) => `Type ${model.mask} where a word is missing.`,
    lines: (model, { texts, found }) => rows(found.logits).flatMap((row, place) => {
      if (texts[0].tokens[place] !== model.mask) return [];
      return best(row, MOST_GUESSES).map((id) => [model.tokenizer.decode([id]) || model.tokenizer.id_to_token(id), row[id]]);
    }),
  },
  "question-answering": {
    asks: "A question about a passage",
    example: () => "Where was Ada Lovelace born?",
    passage: "Ada Lovelace, who wrote the first program, was born in London in 1815.",
    advice: () => "Type a passage that holds the answer.",
    lines: (model, { texts: [{ ids, second }], found }) => {
      const [starts, ends] = [found.start_logits, found.end_logits].map(({ data }) => shares(data));
      let spans = [];
      for (let from = second; from < ids.length - 1; from++) {
        for (let to = from; to < Math.min(from + MOST_TOKENS, ids.length - 1); to++) spans.push([from, to, starts[from] * ends[to]]);
      }
      spans = spans.sort((a, b) => b[2] - a[2]).slice(0, 1);
      return spans.map(([from, to, share]) => [model.tokenizer.decode(ids.slice(from, to + 1)), share]);
    },
  },
};
