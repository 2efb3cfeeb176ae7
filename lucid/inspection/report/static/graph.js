"use strict";
// The graph that opens by module. Cytoscape draws it, layout.js places it; here is which parts are to be seen, and how.

function lucidGraph(graph, colour) {
  const FONT = 12, NEAREST = 1.25, FARTHEST = 0.5, MARGIN = 20; // of the zoom, when something is brought into view
  const MANY = 5; // arrows from one box, such as a mask for all layers: more are drawn faintly
  const modules = new Map(); // path -> {path, name, parent, children, nodes, own}
  const root = { path: "", name: "", parent: null, children: [], nodes: 0, own: [] };
  modules.set("", root);
  function moduleOf(path) {
    if (modules.has(path)) return modules.get(path);
    const cut = path.lastIndexOf(".");
    const parent = moduleOf(cut < 0 ? "" : path.slice(0, cut));
    const made = { path, name: path.slice(cut + 1), parent, children: [], nodes: 0, own: [] };
    parent.children.push(made);
    modules.set(path, made);
    return made;
  }
  const nodes = new Map(graph.nodes.map((node) => [node.id, node]));
  for (const node of graph.nodes) {
    moduleOf(node.module).own.push(node);
    for (let m = moduleOf(node.module); m; m = m.parent) m.nodes += 1;
  }

  const open = new Set([""]);
  function openModule(path) {
    const module = modules.get(path);
    open.add(path);
    if (module.children.length === 1 && !module.own.length) openModule(module.children[0].path);
  }
  function closeModule(path) {
    for (const other of [...open]) if (other === path || other.startsWith(path + ".")) open.delete(other);
    open.add("");
  }
  function openAround(module) {
    for (let m = module; m; m = m.parent) open.add(m.path);
  }
  openModule("");

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

  const shapeOf = (type) => type.replace(/^float32(?=\[)/, "");
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
    const addValues = (values) => {
      for (const value of values) found.set(value.id, { data: { id: value.id, label: value.name + "\n" + value.type, kind: "io" } });
    };
    addValues(graph.inputs);
    for (const node of graph.nodes) {
      const module = modules.get(node.module);
      const closed = closedAround(module);
      if (closed) {
        const id = "m:" + closed.path;
        const label = closed.name + "\n" + (closed.nodes === 1 ? node.op : closed.nodes + " operations");
        if (!found.has(id)) found.set(id, { data: { id, label, parent: frame(closed.parent), kind: "module" } });
        addFrames(closed.parent);
      } else {
        addFrames(module);
        found.set(node.id, { data: { id: node.id, label: node.op, parent: frame(module), kind: kindOf(node.op) } });
      }
    }
    addValues(graph.outputs);
    const arrows = new Map(); // id -> {source, target, what flows: name of the value -> its shape}
    function connect(from, to, name, type) {
      const source = shownAs(from), target = shownAs(to), id = source + ">" + target;
      if (source === target) return;
      if (!arrows.has(id)) arrows.set(id, { id, source, target, flows: new Map() });
      if (nodes.has(from) && nodes.has(to)) arrows.get(id).flows.set(from + ":" + name, shapeOf(type)); // inputs and outputs have theirs in the box
    }
    for (const node of graph.nodes) for (const input of node.inputs) if (input.from) connect(input.from, node.id, input.name, input.type);
    for (const output of graph.outputs) if (output.from) connect(output.from, output.id, output.name, output.type);
    const said = new Set(), leaving = new Map(); // how many arrows leave each box
    for (const { source } of arrows.values()) leaving.set(source, (leaving.get(source) || 0) + 1);
    for (const { flows, ...arrow } of arrows.values()) {
      const shapes = [...flows.values()].filter(Boolean), wide = leaving.get(arrow.source) > MANY;
      const text = wide ? "" : shapes.length > 2 ? `${shapes.length} values` : shapes.join("\n");
      const label = said.has(arrow.source + text) ? "" : text; // once for the arrows with one value
      said.add(arrow.source + text);
      found.set(arrow.id, { data: { ...arrow, label }, classes: wide ? "wide" : "" });
    }
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
      width: "data(w)", height: "data(h)", "font-size": FONT, "font-family": "system-ui, sans-serif", "min-zoomed-font-size": 4,
      color: colour("text"), "background-color": colour("plain"), "border-width": 1, "border-color": colour("line") } },
    ...["module", "matmul", "attention", "norm", "io"].map((kind) => (
      { selector: `node[kind="${kind}"]`, style: { "background-color": colour(kind) } })),
    { selector: 'node[kind="module"]', style: { "border-width": 2, "border-color": colour("accent") } },
    { selector: 'node[kind="frame"]', style: {
      "text-valign": "top", "text-halign": "center", "background-opacity": 0.25, "background-color": colour("module"),
      color: colour("dim"), padding: "12px", "text-events": "yes", "text-background-color": colour("panel"), "text-background-opacity": 0.7 } },
    { selector: "node:selected", style: { "border-width": 3, "border-color": colour("accent") } },
    { selector: "edge", style: {
      "source-label": "data(label)", "source-text-offset": 15, "text-wrap": "wrap", "font-size": 9, "min-zoomed-font-size": 6, color: colour("dim"),
      "text-background-color": colour("panel"), "text-background-opacity": 0.85, "text-background-padding": "1px",
      width: 1.4, "line-color": colour("dim"), "target-arrow-color": colour("dim"), "target-arrow-shape": "triangle",
      "arrow-scale": 0.8, "curve-style": "bezier" } },
    { selector: "edge.wide", style: { opacity: 0.22, width: 1 } },
    { selector: "edge.beside", style: { opacity: 1, width: 2, "line-color": colour("accent"), "target-arrow-color": colour("accent") } },
  ];

  const box = document.getElementById("graph");
  const view = cytoscape({ container: box, style: style(), minZoom: 0.02, maxZoom: 3, userZoomingEnabled: false });
  // The wheel scrolls the page until the picture is clicked, so that nobody is caught in it.
  box.addEventListener("pointerdown", () => view.userZoomingEnabled(true));
  box.addEventListener("pointerleave", (event) => { if (event.pointerType === "mouse") view.userZoomingEnabled(false); });

  let changed = () => {};
  function draw() {
    const shown = elements(), places = lucidLayout.positions(shown);
    const chosen = view.$(":selected").map((element) => element.id());
    view.batch(() => {
      view.elements().remove();
      view.add(shown.map((element) => ({ ...element, position: places.get(element.data.id) })));
      for (const id of chosen) view.getElementById(id).select();
    });
    changed();
  }

  const still = window.matchMedia("(prefers-reduced-motion: reduce)");
  function move(zoom, pan) {
    view.stop(true);
    if (still.matches) view.viewport({ zoom, pan });
    else view.animate({ zoom, pan }, { duration: 250 });
  }
  // Bring parts into view, as large as they fit; what does not fit in a readable size is shown from its top.
  function show(parts, farthest = FARTHEST) {
    if (parts.empty() || !view.width()) return;
    const around = parts.boundingBox(), wide = view.width() - 2 * MARGIN, high = view.height() - 2 * MARGIN;
    const zoom = Math.min(NEAREST, Math.max(farthest, Math.min(wide / around.w, high / around.h)));
    const top = around.h * zoom > high ? MARGIN : (view.height() - around.h * zoom) / 2;
    move(zoom, { x: view.width() / 2 - zoom * (around.x1 + around.x2) / 2, y: top - zoom * around.y1 });
  }
  function zoomBy(factor) {
    const zoom = Math.min(view.maxZoom(), Math.max(view.minZoom(), view.zoom() * factor));
    const middle = { x: view.width() / 2, y: view.height() / 2 }, pan = view.pan();
    move(zoom, { x: middle.x - (middle.x - pan.x) * zoom / view.zoom(), y: middle.y - (middle.y - pan.y) * zoom / view.zoom() });
  }
  const all = () => show(view.elements(), view.minZoom());

  function toggle(path) {
    if (!open.has(path)) {
      openModule(path);
      draw();
      show(view.getElementById("m:" + path));
    } else {
      closeModule(path);
      draw();
      const around = view.getElementById("m:" + path).parent();
      show(around.empty() ? view.elements() : around);
    }
  }
  // Open what is around a module or operation, choose it and bring it into view.
  function reveal(id) {
    const module = id.startsWith("m:") ? modules.get(id.slice(2)) : nodes.has(id) ? modules.get(nodes.get(id).module) : root;
    openAround(id.startsWith("m:") ? module.parent : module);
    draw();
    view.elements().unselect();
    const found = view.getElementById(id).select();
    show(found.neighborhood().union(found));
    return nodes.get(id);
  }
  view.on("select unselect", "node", () => {
    view.edges(".beside").removeClass("beside");
    view.$("node:selected").connectedEdges().addClass("beside");
  });
  view.on("tap", 'node[kind="module"], node[kind="frame"]', (event) => {
    if (event.target.id().startsWith("m:")) toggle(event.target.id().slice(2));
  });

  return {
    view, modules, nodes, toggle, reveal, all, zoomBy, draw,
    isOpen: (path) => open.has(path),
    scroll(x, y) { view.panBy({ x, y }); },
    fold() { open.clear(); openModule(""); draw(); show(view.elements()); },
    unfold() { for (const path of modules.keys()) open.add(path); draw(); show(view.elements()); },
    start() { draw(); show(view.elements()); },
    restyle() { view.style(style()); },
    onNode(call) { view.on("tap", "node", (event) => { const n = nodes.get(event.target.id()); if (n) call(n); }); },
    onChange(call) { changed = call; },
  };
}
