"use strict";
// Small helpers of the other scripts: elements of the page, and numbers and names as people read them.

function lucidElement(tag, text, more = {}) {
  const made = Object.assign(document.createElement(tag), more);
  if (text !== undefined) made.textContent = text;
  return made;
}

const lucidWords = {
  // 22565376 -> "22.6 M"
  count(number) {
    const [unit, name] = [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]].find(([least]) => number >= least) || [1, ""];
    return `${unit === 1 ? number : (number / unit).toPrecision(3)}${name && " " + name}`;
  },
  bytes(number) {
    const [unit, name] = [[1e9, "GB"], [1e6, "MB"], [1e3, "kB"]].find(([least]) => number >= least) || [1, "bytes"];
    return `${unit === 1 ? number : (number / unit).toPrecision(3)} ${name}`;
  },
  milliseconds: (seconds) => `${(seconds * 1e3).toPrecision(3)} ms`,
  error: (number) => (number === null || number === undefined ? "not a number" : number === 0 ? "0" : number.toExponential(1)),
  form: (name) => (name === "expanded" ? "expanded into basic operations" : name),
  many: (number, name) => `${number} ${name}${number === 1 ? "" : "s"}`,
};
