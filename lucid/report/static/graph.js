"use strict";
// The graph that folds by module. Cytoscape draws it, dagre places it; here is only which parts are to be seen.

function lucidGraph(graph, colour) {
  const FONT = 12;
  const modules = new Map(); // path -> {path, name, parent, children, nodes}
  const root = { path: "", name: "", parent: null, children: [], nodes: 0 };
  modules.set("", root);
  function moduleOf(path) {
    if (modules.has(path)) return modules.get(path);
    const cut = path.lastIndexOf(".");
    const parent = moduleOf(cut < 0 ? "" : path.slice(0, cut));
    const made = { path, name: path.slice(cut + 1), parent, children: [], nodes: 0 };
    parent.children.push(made);
    modules.set(path, made);
    return made;
  }
  const nodes = new Map(graph.nodes.map((node) => [node.id, node]));
  for (const node of graph.nodes) {
    for (let m = moduleOf(node.module); m; m = m.parent) m.nodes += 1;
  }
  const ownNodes = (module) => module.nodes - module.children.reduce((sum, child) => sum + child.nodes, 0);

  const open = new Set([""]);
  function openModule(path) {
    const module = modules.get(path);
    open.add(path);
    if (module.children.length === 1 && !ownNodes(module)) openModule(module.children[0].path);
  }
  function closeModule(path) {
    for (const other of [...open]) if (other === path || other.startsWith(path + ".")) open.delete(other);
    open.add("");
  }
  function openAll() {
    for (const path of modules.keys()) open.add(path);
  }
  function foldAll() {
    open.clear();
    openModule("");
  }
  foldAll();

  // The outermost closed module around a module; null if all are open.
  function closedAround(module) {
    let found = null;
    for (let m = module; m && m.path !== ""; m = m.parent) if (!open.has(m.path)) found = m;
    return found;
  }
  function shownAs(id) {
    const node = nodes.get(id);
    if (!node) return id; // an input or output
    const closed = closedAround(modules.get(node.module));
    return closed ? "m:" + closed.path : id;
  }

  function elements() {
    const found = new Map();
    const frame = (module) => (module && module.path !== "" ? "m:" + module.path : undefined);
    function addFrames(module) {
      for (let m = module; m && m.path !== ""; m = m.parent) {
        if (!found.has("m:" + m.path)) {
          found.set("m:" + m.path, { data: { id: "m:" + m.path, label: m.name, parent: frame(m.parent), kind: "frame" } });
        }
      }
    }
    for (const value of [...graph.inputs, ...graph.outputs]) {
      found.set(value.id, { data: { id: value.id, label: value.name + "\n" + value.type, kind: "io" } });
    }
    for (const node of graph.nodes) {
      const module = modules.get(node.module);
      const closed = closedAround(module);
      if (closed) {
        const id = "m:" + closed.path;
        const label = closed.name + "\n" + (closed.nodes === 1 ? node.op : closed.nodes + " nodes");
        if (!found.has(id)) found.set(id, { data: { id, label, parent: frame(closed.parent), kind: "module" } });
        addFrames(closed.parent);
      } else {
        addFrames(module);
        found.set(node.id, { data: { id: node.id, label: node.op, parent: frame(module), kind: kindOf(node.op) } });
      }
    }
    function connect(from, to) {
      const source = shownAs(from), target = shownAs(to), id = source + ">" + target;
      if (source !== target && !found.has(id)) found.set(id, { data: { id, source, target } });
    }
    for (const node of graph.nodes) for (const input of node.inputs) if (input.from) connect(input.from, node.id);
    for (const output of graph.outputs) if (output.from) connect(output.from, output.id);
    return [...found.values()].map(sized);
  }

  function kindOf(op) {
    const name = op.toLowerCase();
    if (name.includes("attention")) return "attention";
    if (/linear|matmul|gemm|conv|einsum/.test(name)) return "matmul";
    if (name.includes("norm") || name.includes("softmax")) return "norm";
    return "plain";
  }

  const pen = document.createElement("canvas").getContext("2d");
  pen.font = `${FONT}px system-ui, sans-serif`;
  function sized(element) {
    const lines = (element.data.label || "").split("\n"), room = element.data.kind === "module" ? 28 : 16;
    element.data.w = Math.max(...lines.map((line) => pen.measureText(line).width)) + room;
    element.data.h = lines.length * FONT * 1.2 + room * 0.75;
    return element;
  }

  const style = () => [
    { selector: "node", style: {
      label: "data(label)", "text-wrap": "wrap", "text-valign": "center", "text-halign": "center", shape: "round-rectangle",
      width: "data(w)", height: "data(h)", "font-size": FONT, "font-family": "system-ui, sans-serif",
      color: colour("text"), "background-color": colour("plain"), "border-width": 1, "border-color": colour("line") } },
    ...["module", "matmul", "attention", "norm", "io"].map((kind) => (
      { selector: `node[kind="${kind}"]`, style: { "background-color": colour(kind) } })),
    { selector: 'node[kind="module"]', style: { "border-width": 2, "border-color": colour("accent") } },
    { selector: 'node[kind="frame"]', style: {
      "text-valign": "top", "text-halign": "center", "background-opacity": 0.25, "background-color": colour("module"),
      color: colour("dim"), padding: "12px", "text-events": "yes" } },
    { selector: "node:selected", style: { "border-width": 3, "border-color": colour("accent") } },
    { selector: "edge", style: {
      width: 1.4, "line-color": colour("dim"), "target-arrow-color": colour("dim"), "target-arrow-shape": "triangle",
      "arrow-scale": 0.8, "curve-style": "bezier" } },
  ];

  const view = cytoscape({ container: document.getElementById("graph"), style: style(), minZoom: 0.05, maxZoom: 3 });
  let changed = () => {};
  function draw() {
    view.elements().remove();
    view.add(elements());
    view.layout({ name: "dagre", rankDir: "TB", nodeSep: 16, rankSep: 32, animate: false, padding: 16 }).run();
    changed();
  }
  function toggle(path) {
    if (open.has(path)) closeModule(path);
    else openModule(path);
    draw();
  }
  view.on("tap", 'node[kind="module"], node[kind="frame"]', (event) => {
    if (event.target.id().startsWith("m:")) toggle(event.target.id().slice(2));
  });

  return {
    view, modules, nodes, toggle,
    isOpen: (path) => open.has(path),
    fold() { foldAll(); draw(); },
    unfold() { openAll(); draw(); },
    restyle() { view.style(style()); },
    onNode(show) { view.on("tap", "node", (event) => { const n = nodes.get(event.target.id()); if (n) show(n); }); },
    onChange(call) { changed = call; },
    draw,
  };
}
