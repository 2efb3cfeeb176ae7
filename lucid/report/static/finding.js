"use strict";
// The search for modules, operations and weights, and the list of modules and operations beside the graph.

function lucidFinding(graph, choose) {
  const byId = (id) => document.getElementById(id);

  // Search --------------------------------------------------------------------------------------------------------------

  const MOST = 60;
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
  for (const value of graph.values) entries.push({ id: value.id, name: value.name, kind: value.id.startsWith("i:") ? "input" : "output", more: value.type });
  for (const entry of entries) entry.text = `${entry.name} ${entry.more} ${entry.kind}`.toLowerCase();

  const field = byId("search"), list = byId("found");
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

  // The list ------------------------------------------------------------------------------------------------------------

  const outline = byId("outline");
  let chosen = "";
  function line(id, text, level, more) {
    const made = lucidElement("button", text, { type: "button", role: "treeitem", tabIndex: -1, ...more });
    made.dataset.id = id;
    made.setAttribute("aria-level", level + 1);
    made.setAttribute("aria-selected", id === chosen);
    made.style.paddingLeft = `${0.2 + level * 0.9}rem`;
    return made;
  }
  function showOutline() {
    const scrolled = outline.scrollTop, held = outline.contains(document.activeElement) ? document.activeElement.dataset.id : null;
    const lines = [];
    const add = (module, level) => {
      for (const child of module.children) {
        const isOpen = graph.isOpen(child.path), id = "m:" + child.path;
        const made = line(id, `${isOpen ? "▾" : "▸"} ${child.name} `, level, { onclick: () => graph.toggle(child.path) });
        made.dataset.module = child.path;
        made.setAttribute("aria-expanded", isOpen);
        made.append(lucidElement("span", child.nodes));
        lines.push(made);
        if (isOpen) add(child, level + 1);
      }
      for (const node of module.own) lines.push(line(node.id, node.op, level, { className: "op", onclick: () => choose(node.id) }));
    };
    add(graph.modules.get(""), 0);
    outline.replaceChildren(...lines);
    outline.hidden = !lines.length;
    outline.scrollTop = scrolled;
    const entry = lines.find((each) => each.dataset.id === (held || chosen)) || lines[0];
    if (entry) entry.tabIndex = 0;
    if (held) entry?.focus();
  }
  outline.onkeydown = (event) => {
    const lines = [...outline.children], at = lines.indexOf(document.activeElement), here = lines[at];
    if (!here) return;
    const level = Number(here.getAttribute("aria-level")), expanded = here.getAttribute("aria-expanded");
    const parent = () => lines.slice(0, at).reverse().find((each) => Number(each.getAttribute("aria-level")) < level);
    const go = (line) => { if (line) { here.tabIndex = -1; line.tabIndex = 0; line.focus(); } };
    const act = {
      ArrowDown: () => go(lines[at + 1]), ArrowUp: () => go(lines[at - 1]), Home: () => go(lines[0]), End: () => go(lines.at(-1)),
      ArrowRight: () => (expanded === "false" ? here.click() : expanded && go(lines[at + 1])),
      ArrowLeft: () => (expanded === "true" ? here.click() : go(parent())),
    }[event.key];
    if (!act) return;
    event.preventDefault();
    act();
  };
  function markChosen(id) {
    chosen = id;
    for (const each of outline.children) {
      each.setAttribute("aria-selected", each.dataset.id === id);
      if (each.dataset.id === id) each.scrollIntoView({ block: "nearest" });
    }
  }
  return { showOutline, chosen: markChosen, focus() { field.focus(); field.select(); } };
}
