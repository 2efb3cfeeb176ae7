"use strict";
// The search for modules, operations, weights, inputs and outputs above the graph.

function lucidSearch(graph, values, choose) {
  const MOST = 60; // shown
  const field = document.getElementById("search"), list = document.getElementById("found");
  const entries = [];
  for (const module of graph.modules.values()) {
    if (module.path) entries.push({ id: "m:" + module.path, name: module.path, kind: "module", more: lucidWords.many(module.nodes, "operation") });
  }
  const seen = new Set();
  for (const node of graph.nodes.values()) {
    entries.push({ id: node.id, name: node.op, kind: "operation", more: node.module });
    for (const input of node.inputs) {
      if (input.from || !input.type.includes("[") || input.name === "constant" || seen.has(input.name)) continue;
      seen.add(input.name);
      entries.push({ id: node.id, name: input.name, kind: "weight", more: input.type });
    }
  }
  for (const value of values) entries.push({ id: value.id, name: value.name, kind: value.id.startsWith("i:") ? "input" : "output", more: value.type });
  for (const entry of entries) entry.text = `${entry.name} ${entry.more} ${entry.kind}`.toLowerCase();

  let shown = [], current = 0;
  function matches(text) {
    const words = text.toLowerCase().split(/\s+/).filter(Boolean);
    if (!words.length) return [];
    const found = entries.filter((entry) => words.every((word) => entry.text.includes(word)));
    const rank = (entry) => (entry.name.toLowerCase() === words[0] ? 0 : entry.name.toLowerCase().includes(words[0]) ? 1 : 2);
    return found.map((entry) => [rank(entry), entry]).sort((a, b) => a[0] - b[0]).map(([, entry]) => entry);
  }
  function mark(index) {
    current = (index + shown.length) % Math.max(1, shown.length);
    [...list.children].forEach((line, i) => line.setAttribute("aria-selected", i === current));
    field.setAttribute("aria-activedescendant", shown.length ? `found-${current}` : "");
    list.children[current]?.scrollIntoView({ block: "nearest" });
  }
  function close() {
    list.hidden = true;
    field.setAttribute("aria-expanded", false);
  }
  function take(entry) {
    close();
    if (entry) choose(entry.id);
  }
  function search() {
    const all = matches(field.value);
    shown = all.slice(0, MOST);
    list.replaceChildren(...shown.map((entry, index) => {
      const line = lucidElement("li", entry.name + " ", { id: `found-${index}`, role: "option" });
      line.append(lucidElement("span", `${entry.kind}${entry.more ? " · " + entry.more : ""}`));
      line.onpointerdown = (event) => { event.preventDefault(); take(entry); };
      return line;
    }));
    if (field.value.trim() && all.length > MOST) list.append(lucidElement("span", `and ${all.length - MOST} more: write more of the name`));
    if (field.value.trim() && !all.length) list.append(lucidElement("span", "nothing has this name"));
    list.hidden = !field.value.trim();
    field.setAttribute("aria-expanded", !list.hidden);
    mark(0);
  }
  field.oninput = search;
  field.onfocus = search;
  field.onblur = close;
  field.onkeydown = (event) => {
    const act = { ArrowDown: () => mark(current + 1), ArrowUp: () => mark(current - 1), Enter: () => take(shown[current]), Escape: close }[event.key];
    if (!act) return;
    event.preventDefault();
    act();
  };
  return { focus() { field.focus(); field.select(); } };
}
