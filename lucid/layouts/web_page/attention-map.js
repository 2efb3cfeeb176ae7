// A table of attention weights that can be read with the arrow keys.
"use strict";

class AttentionMap {
  constructor(table, said) {
    Object.assign(this, { table, said });
    table.addEventListener("keydown", (event) => this.#move(event));
    table.addEventListener("focusin", ({ target }) => this.#say(target));
    table.addEventListener("pointerover", ({ target }) => this.#say(target));
  }

  // `head`: its number, or "mean".
  show(text, layer, head) {
    const weight = head === "mean" ? this.#mean(text, layer) : (from, to) => text.weight(layer, head, from, to);
    const top = element("tr", {}, element("td"), ...text.tokens.map((token) => this.#token(token, "col")));
    const rows = text.tokens.map((token, from) => {
      const cells = text.tokens.map((other, to) => this.#cell(weight(from, to), token, other));
      return element("tr", {}, this.#token(token, "row"), ...cells);
    });
    this.table.replaceChildren(element("thead", {}, top), element("tbody", {}, ...rows));
    this.table.querySelector("tbody td").tabIndex = 0;
    this.said.textContent = "";
  }

  #mean(text, layer) {
    const heads = [...Array(text.heads).keys()];
    return (from, to) => heads.reduce((sum, head) => sum + text.weight(layer, head, from, to), 0) / text.heads;
  }

  #token(token, scope) {
    return element("th", { scope }, element("span", {}, token));
  }

  #cell(weight, token, other) {
    const says = `${token} takes ${weight.toFixed(3)} from ${other}`;
    const cell = element("td", { tabindex: -1, "aria-label": says });
    cell.style.setProperty("--weight", weight);
    return cell;
  }

  #say(target) {
    if (target.ariaLabel) this.said.textContent = target.ariaLabel;
  }

  #move(event) {
    const step = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[event.key];
    if (!step || !event.target.ariaLabel) return;
    const row = event.target.parentElement;
    const next = this.table.tBodies[0].rows[row.sectionRowIndex + step[0]]?.cells[event.target.cellIndex + step[1]];
    event.preventDefault();
    if (!next?.ariaLabel) return;
    event.target.tabIndex = -1;
    next.tabIndex = 0;
    next.focus();
  }
}
