"use strict";
// Puts the page together: sections, the details of an operation, targets, keys, light and dark.

const lucidReport = (() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const byId = (id) => document.getElementById(id);
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim();
  const element = lucidElement, { error, many } = lucidWords;

  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  document.documentElement.dataset.theme = dark.matches ? "dark" : "light";

  const graph = lucidGraph(data.graph, colour);
  const values = [...data.graph.inputs, ...data.graph.outputs];
  const outline = lucidOutline(graph, choose), search = lucidSearch(graph, values, choose);

  // Head ----------------------------------------------------------------------------------------------------------------

  const shapes = Object.entries(data.shapes).map(([name, shape]) => `${name} [${shape.join(", ")}]`).join(", ");
  const text = data.attention.tokens.length ? `“${data.attention.tokens.join(" ")}”, ` : "";
  const inputs = shapes && (data.random ? `inputs of this page: random, ${shapes}` : `inputs of this page: ${text}${shapes}`);
  byId("facts").textContent = [many(data.graph.nodes.length, "operation"), inputs].filter(Boolean).join(" · ");
  byId("made").textContent = `Made by Lucid ${data.version}. This page loads nothing from anywhere.`;
  for (const section of document.querySelectorAll("section")) {
    const reason = data.missing[section.id];
    section.hidden = Boolean(reason);
    if (reason) byId("missing").append(element("dt", section.dataset.name), element("dd", reason));
    else byId("sections").append(element("a", section.dataset.name, { href: "#" + section.id }));
  }
  byId("not-shown").hidden = !byId("missing").childElementCount;

  // Graph ---------------------------------------------------------------------------------------------------------------

  // Choose a module, operation, input or output: it is shown in the picture and in the list, an operation with its details.
  function choose(id) {
    const node = graph.reveal(id);
    if (node) showNode(node);
    outline.mark(id);
    if (byId("graph").getBoundingClientRect().top < 0 || byId("graph").getBoundingClientRect().bottom > window.innerHeight) {
      byId("graph-section").scrollIntoView();
    }
  }
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
    row("line", node.line);
    row("inputs", ...node.inputs.map((i) => `${i.name}: ${i.type}`));
    row("outputs", ...node.outputs);
    row("options", ...Object.entries(node.attributes).map(([k, v]) => `${k} = ${v}`));
    row(data.errors.length ? "written to ONNX as" : "name", node.form);
    if (node.error !== null) row("largest difference from NumPy", error(node.error));
    panel.append(list, element("button", "Close", { type: "button", onclick: closeNode }));
    graph.view.resize();
    outline.mark(node.id);
  }
  function closeNode() {
    byId("node").hidden = true;
    graph.view.resize();
  }
  graph.onNode(showNode);
  graph.onChange(() => {
    outline.show();
    const shown = graph.view.nodes(":childless").length - values.length;
    byId("count").textContent = `${shown === 1 ? "1 box" : `${shown} boxes`} for ${many(graph.nodes.size, "operation")}`;
  });
  graph.start();
  byId("fold").onclick = graph.fold;
  byId("unfold").onclick = graph.unfold;
  byId("fit").onclick = graph.all;
  byId("in").onclick = () => graph.zoomBy(1.4);
  byId("out").onclick = () => graph.zoomBy(1 / 1.4);

  const STEP = 60;
  byId("graph").onkeydown = (event) => {
    const act = { ArrowUp: () => graph.scroll(0, STEP), ArrowDown: () => graph.scroll(0, -STEP), ArrowLeft: () => graph.scroll(STEP, 0),
      ArrowRight: () => graph.scroll(-STEP, 0), "+": () => graph.zoomBy(1.4), "=": () => graph.zoomBy(1.4), "-": () => graph.zoomBy(1 / 1.4),
      0: graph.all }[event.key];
    if (!act || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    act();
  };
  document.addEventListener("keydown", (event) => {
    const writing = event.target.matches("input, textarea");
    if (event.key === "/" && !writing) {
      event.preventDefault();
      search.focus();
    }
    if (event.key === "Escape" && !writing) closeNode();
  });

  // Cost, attention, error, targets ---------------------------------------------------------------------------------------

  lucidCost(data, choose);
  const charts = lucidCharts(data, colour), attention = lucidAttention(data.attention, charts);
  if (data.errors.length) charts.showErrors(choose);
  if (data.precision) {
    charts.showPrecision();
    byId("precision-summary").append(...data.precision.summary.map((line) => element("p", line)));
  }
  function showTargets() {
    charts.showTargets();
    const table = byId("targets");
    const line = (tag, cells) => { const tr = element("tr"); tr.append(...cells.map((c) => element(tag, c))); table.append(tr); return tr; };
    line("th", ["target", "what it is", "opset", "ONNX nodes", "file, MB", "median, ms", "90 %, ms", "99 %, ms", "memory, MB", "differs from NumPy by"]);
    for (const t of data.targets) {
      if (t.problem) line("td", [t.target]).append(element("td", t.problem, { colSpan: 9, className: "words problem" }));
      else {
        const cells = line("td", [t.target, t.about, t.opset, t.nodes, (t.bytes / 1e6).toFixed(2), ...[t.p50, t.p90, t.p99].map((s) => (s * 1e3).toFixed(3)),
          (t.model_memory / 1e6).toFixed(1), error(t.max_abs) + (t.agrees === false ? ", more than rounding" : "")]).children;
        cells[1].className = "words";
        if (t.agrees === false) cells[9].className = "problem";
      }
    }
    for (const th of table.querySelectorAll("th:nth-child(2)")) th.className = "words";
  }
  function showForms() {
    for (const t of data.targets.filter((t) => t.forms && t.forms.length)) {
      const groups = new Map(); // the same decision in many places is told once
      for (const form of t.forms) {
        const key = JSON.stringify([form.form, form.note, form.refused]);
        groups.set(key, [...(groups.get(key) || []), form]);
      }
      byId("forms").append(element("h3", `Target ${t.target}`));
      for (const [first, ...alike] of groups.values()) {
        const more = alike.length ? ` and ${many(alike.length, "other place")}` : "";
        const counts = [first, ...alike].map((form) => form.nodes), least = Math.min(...counts), most = Math.max(...counts);
        const nodes = `${least === most ? "" : `${least} to `}${many(most, "ONNX node")}`;
        byId("forms").append(element("p", `${first.node}${more}: ${lucidWords.form(first.form)}, ${nodes}${first.note ? "; " + first.note : ""}`));
        if (!first.refused.length) continue;
        const rest = element("details"), list = element("ul");
        rest.append(element("summary", "why not otherwise"), list);
        list.append(...first.refused.map(([name, reason]) => element("li", `${name}: ${reason}`)));
        byId("forms").append(rest);
      }
    }
  }
  if (data.targets.length) {
    showTargets();
    showForms();
  }

  // Light and dark ------------------------------------------------------------------------------------------------------

  function setTheme(theme) {
    document.documentElement.dataset.theme = theme;
    graph.restyle();
    charts.restyle();
    attention.restyle();
  }
  byId("theme").onclick = () => setTheme(document.documentElement.dataset.theme === "dark" ? "light" : "dark");
  dark.addEventListener("change", (event) => setTheme(event.matches ? "dark" : "light"));
  return { graph, charts };
})();
