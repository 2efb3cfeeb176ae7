"use strict";
// Puts the page together: sections, the node's panel, the outline, sliders, light and dark.

const lucidReport = (() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const byId = (id) => document.getElementById(id);
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim();
  function element(tag, text, more = {}) {
    const made = Object.assign(document.createElement(tag), more);
    if (text !== undefined) made.textContent = text;
    return made;
  }

  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  document.documentElement.dataset.theme = dark.matches ? "dark" : "light";

  const graph = lucidGraph(data.graph, colour);
  const charts = lucidCharts(data, colour);

  // Head ----------------------------------------------------------------------------------------------------------------

  const shapes = Object.entries(data.shapes).map(([name, shape]) => `${name} [${shape.join(", ")}]`);
  byId("facts").textContent = [`${data.graph.nodes.length} nodes`, ...shapes, data.random ? "random inputs" : ""].filter(Boolean).join(" · ");
  byId("made").textContent = `Made by Lucid ${data.version}. This page loads nothing from anywhere.`;
  const empty = { "attention-section": !data.attention.layers.length, "error-section": !data.errors.length, "precision-section": !data.precision,
    "target-section": !data.targets.length, "form-section": !data.targets.some((t) => t.forms && t.forms.length) };
  for (const section of document.querySelectorAll("section")) {
    if (empty[section.id]) section.remove();
    else byId("sections").append(element("a", section.dataset.name, { href: "#" + section.id }));
  }

  // Graph ---------------------------------------------------------------------------------------------------------------

  function showNode(node) {
    const panel = byId("node");
    panel.hidden = false;
    panel.replaceChildren(element("h3", node.op));
    const list = element("dl");
    const row = (name, ...values) => {
      if (!values.some((v) => v !== "" && v !== null && v !== undefined)) return;
      list.append(element("dt", name), ...values.map((v) => element("dd", v)));
    };
    row("module", node.module || "the model itself");
    row("inputs", ...node.inputs.map((i) => `${i.name}: ${i.type}`));
    row("outputs", ...node.outputs);
    row("attributes", ...Object.entries(node.attributes).map(([k, v]) => `${k} = ${v}`));
    row("in ONNX", node.form);
    if (node.error !== null) row("largest difference", node.error.toExponential(2));
    const close = element("button", "Close", { type: "button", onclick: () => { panel.hidden = true; graph.view.resize(); } });
    panel.append(list, close);
    graph.view.resize();
  }
  function showOutline() {
    const outline = byId("outline");
    const scrolled = outline.scrollTop;
    outline.replaceChildren();
    const add = (module, level) => {
      for (const child of module.children) {
        const open = graph.isOpen(child.path);
        const line = element("button", `${open ? "▾" : "▸"} ${child.name} `, { type: "button", onclick: () => graph.toggle(child.path) });
        line.dataset.module = child.path;
        line.setAttribute("aria-expanded", open);
        line.style.paddingLeft = `${0.2 + level * 0.9}rem`;
        line.append(element("span", child.nodes));
        outline.append(line);
        if (open) add(child, level + 1);
      }
    };
    add(graph.modules.get(""), 0);
    outline.hidden = !outline.childElementCount;
    outline.scrollTop = scrolled;
    byId("count").textContent = `${graph.view.nodes(":childless").length} boxes shown`;
  }
  graph.onNode(showNode);
  graph.onChange(showOutline);
  graph.draw();
  byId("fold").onclick = graph.fold;
  byId("unfold").onclick = graph.unfold;
  byId("fit").onclick = () => graph.view.fit(undefined, 16);

  // Attention -----------------------------------------------------------------------------------------------------------

  let head = "mean";
  function showAttention() {
    const index = Number(byId("layer").value), layer = data.attention.layers[index];
    if (head !== "mean" && head >= layer.heads) head = "mean";
    byId("layer-name").textContent = `${index + 1} of ${data.attention.layers.length}: ${layer.module}`;
    const names = ["mean", ...Array.from({ length: layer.heads }, (_, h) => h)];
    byId("heads").replaceChildren(element("span", "head"), ...names.map((name) => {
      const chip = element("button", name === "mean" ? "mean" : name + 1, { type: "button", onclick: () => { head = name; showAttention(); } });
      chip.setAttribute("aria-pressed", name === head);
      return chip;
    }));
    const { most } = charts.showMap(index, head);
    const cut = data.attention.cut ? ` The first ${layer.queries} of ${data.attention.cut} positions.` : "";
    byId("map-note").textContent = `Rows are queries, columns keys; the largest weight here is ${most.toFixed(3)}.${cut}`;
  }
  if (data.attention.layers.length) {
    byId("layer").max = data.attention.layers.length - 1;
    byId("layer").oninput = showAttention;
    showAttention();
  }

  // Error, targets, forms -----------------------------------------------------------------------------------------------

  if (data.errors.length) charts.showErrors();
  if (data.precision) {
    charts.showPrecision();
    byId("precision-summary").append(...data.precision.summary.map((line) => element("p", line)));
  }
  if (data.targets.length) {
    charts.showTargets();
    const table = byId("targets");
    const line = (tag, cells) => { const tr = element("tr"); tr.append(...cells.map((c) => element(tag, c))); table.append(tr); return tr; };
    line("th", ["target", "opset", "nodes", "file, MB", "median, ms", "90 %, ms", "99 %, ms", "memory, MB"]);
    for (const t of data.targets) {
      if (t.problem) line("td", [t.target]).append(element("td", t.problem, { colSpan: 7, className: "words problem" }));
      else line("td", [t.target, t.opset, t.nodes, (t.bytes / 1e6).toFixed(2), ...[t.p50, t.p90, t.p99].map((s) => (s * 1e3).toFixed(3)),
        (t.model_memory / 1e6).toFixed(1)]);
    }
    for (const t of data.targets.filter((t) => t.forms && t.forms.length)) {
      const groups = new Map(); // the same decision in many places is told once
      for (const form of t.forms) {
        const key = JSON.stringify([form.form, form.note, form.refused]);
        groups.set(key, [...(groups.get(key) || []), form]);
      }
      byId("forms").append(element("h3", "target " + t.target));
      for (const [first, ...alike] of groups.values()) {
        const more = alike.length ? ` and ${alike.length} more` : "";
        const counts = [first, ...alike].map((form) => form.nodes), least = Math.min(...counts), most = Math.max(...counts);
        const nodes = `${least === most ? most : `${least} to ${most}`} node${most === 1 ? "" : "s"}`;
        byId("forms").append(element("p", `${first.node}${more}: ${first.form}, ${nodes}${first.note ? "; " + first.note : ""}`));
        if (!first.refused.length) continue;
        const list = element("ul");
        list.append(...first.refused.map(([name, reason]) => element("li", `not ${name}: ${reason}`)));
        byId("forms").append(list);
      }
    }
  }

  // Light and dark ------------------------------------------------------------------------------------------------------

  function setTheme(theme) {
    document.documentElement.dataset.theme = theme;
    graph.restyle();
    charts.restyle();
  }
  byId("theme").onclick = () => setTheme(document.documentElement.dataset.theme === "dark" ? "light" : "dark");
  dark.addEventListener("change", (event) => setTheme(event.matches ? "dark" : "light"));
  return { graph, charts };
})();
