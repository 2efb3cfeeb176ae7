// What a model says of a text or an image, by its task: lines with their shares, from its outputs.
"use strict";

const MOST_GUESSES = 5, MOST_TOKENS = 30; // of a gap or an image; of an answer

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

// The probability of each label, where one is right or several may be.
function probabilities(model, logits) {
  return model.about.several ? Array.from(logits, (logit) => 1 / (1 + Math.exp(-logit))) : shares(logits);
}

// The vector of an image: an output of its own, or that of the first token, which stands for the image.
function vector({ image_embeds, pooler_output, last_hidden_state: states }) {
  const whole = image_embeds ?? pooler_output;
  return whole ? whole.data : states.data.slice(0, states.dims[2]);
}

// The likeliest label of each place, from logits (1, labels, h, w).
function labelsOfPlaces({ data, dims: [, labels, height, width] }) {
  const places = height * width;
  return Array.from({ length: places }, (_, place) => {
    let most = 0;
    for (let label = 1; label < labels; label++) if (data[label * places + place] > data[most * places + place]) most = label;
    return most;
  });
}

function colour(label) {
  return `hsl(${(label * 137.5) % 360} 80% 50%)`; // far from those of the labels beside it
}

function best(list, count) {
  return [...list.keys()].sort((a, b) => list[b] - list[a]).slice(0, count);
}

const TASKS = {
  "text-classification": {
    asks: "A text to classify",
    example: () => "I like this very much.",
    lines: (model, { found }) => probabilities(model, found.logits.data).map((share, i) => [model.label(i), share]),
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
  "image-classification": {
    asks: "Images to classify",
    lines: (model, { found }) => {
      const all = probabilities(model, found.logits.data);
      return best(all, MOST_GUESSES).map((label) => [model.label(label), all[label]]);
    },
  },
  "image-feature-extraction": {
    asks: "Images to compare",
    lines: (model, image, images) => images.filter((other) => other !== image).map((other) => {
      return [`similar to ${other.name}`, cosine(vector(image.found), vector(other.found))];
    }),
  },
  "image-segmentation": {
    asks: "Images to divide into parts",
    lines: (model, { found }) => {
      const places = labelsOfPlaces(found.logits), areas = new Array(found.logits.dims[1]).fill(0);
      for (const label of places) areas[label] += 1 / places.length;
      return best(areas, areas.length).filter((label) => areas[label]).map((label) => [model.label(label), areas[label], colour(label)]);
    },
    map: ({ found }) => {
      const made = document.createElement("canvas"), [, , height, width] = found.logits.dims;
      Object.assign(made, { width, height });
      const context = made.getContext("2d");
      labelsOfPlaces(found.logits).forEach((label, place) => {
        context.fillStyle = colour(label);
        context.fillRect(place % width, Math.floor(place / width), 1, 1);
      });
      return made;
    },
  },
};
