"use strict";
// The list of modules and operations beside the graph.

function lucidOutline(graph, choose) {
  const outline = document.getElementById("outline");
  let chosen = "";
  function line(id, text, level, more) {
    const made = lucidElement("button", text, { type: "button", role: "treeitem", tabIndex: -1, ...more });
    made.dataset.id = id;
    made.setAttribute("aria-level", level + 1);
    made.setAttribute("aria-selected", id === chosen);
    made.style.paddingLeft = `${0.2 + level * 0.9}rem`;
    return made;
  }
  function show() {
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
  function mark(id) {
    chosen = id;
    for (const each of outline.children) {
      each.setAttribute("aria-selected", each.dataset.id === id);
      if (each.dataset.id === id) each.scrollIntoView({ block: "nearest" });
    }
  }
  return { show, mark };
}
