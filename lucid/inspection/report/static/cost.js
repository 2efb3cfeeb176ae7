"use strict";
// The summary, and the table of what each module costs.

function lucidCost(data, choose) {
  const byId = (id) => document.getElementById(id);
  const { count, bytes, milliseconds, error, many } = lucidWords;
  const cost = data.cost, good = data.targets.filter((t) => !t.problem);

  // Summary -------------------------------------------------------------------------------------------------------------

  function card(name, value, note, className = "") {
    const box = document.createElement("div");
    box.append(lucidElement("dt", name));
    if (value) box.append(lucidElement("dd", value, { className }));
    for (const line of [note].flat().filter(Boolean)) box.append(lucidElement("dd", line, { className: "note" }));
    byId("summary").append(box);
  }
  const total = cost?.modules[0];
  if (total) {
    card("Parameters", count(cost.parameters), `${bytes(total.bytes)} of weights`);
    card("File", bytes(cost.bytes), cost.target && `${many(total.nodes, "ONNX node")}, target ${cost.target}`);
    card("Work of a run", `${count(total.flops)} FLOPs`, Object.entries(cost.sizes).map(([k, v]) => `${k} = ${v}`).join(", "));
  }
  if (good.length) {
    const fastest = good.reduce((a, b) => (b.p50 < a.p50 ? b : a));
    card("Time of a run", milliseconds(fastest.p50), `median on this machine, target ${fastest.target}`);
    const bad = good.filter((t) => t.agrees === false), worst = good.reduce((a, b) => (b.max_abs === null || b.max_abs > a.max_abs ? b : a));
    if (bad.length) card("Differs from NumPy", bad.map((t) => t.target).join(", "), `by up to ${error(worst.max_abs)}, more than rounding explains`, "problem");
    else if (good.some((t) => t.agrees === null)) card("Beside NumPy", error(worst.max_abs), "the largest difference; inputs of products are rounded to 8 bits");
    else card("Agrees with NumPy", `within ${error(worst.max_abs)}`, [`the largest difference in ${many(good.length, "target")}`,
      worst.of === null ? "" : `outputs reach ${worst.of.toPrecision(3)}`], "good");
    const forms = good.map((t) => [t.target, [...new Set(t.forms.map((f) => lucidWords.form(f.form)))].join(", ")]).filter(([, form]) => form);
    if (forms.length) card("Attention is written as", "", forms.map(([target, form]) => `${target}: ${form}`));
  }

  // The table -----------------------------------------------------------------------------------------------------------

  const LINES = 24; // to show at first, about
  function table() {
    const columns = [["ONNX nodes", "nodes", String], ["parameters", "parameters", count], ["weights", "bytes", bytes], ["FLOPs", "flops", count],
      ...(cost.timed ? [["time", "seconds", milliseconds]] : [])].filter(([, key]) => total[key]);
    const rows = cost.modules.map((row) => ({ ...row, children: [], open: false }));
    const byPath = new Map(rows.map((row) => [row.module, row]));
    for (const row of rows.slice(1)) {
      const cut = row.module.lastIndexOf(".");
      row.parent = byPath.get(cut < 0 ? "" : row.module.slice(0, cut));
      row.level = (row.parent.level || 0) + 1;
      row.parent.children.push(row);
    }
    rows[0].open = true;
    const visible = (row) => { for (let p = row.parent; p; p = p.parent) if (!p.open) return false; return true; };
    for (let level = 1; rows.filter((row) => (row.level || 0) <= level + 1).length <= LINES && level < 9; level++) {
      for (const row of rows) if (row.level === level) row.open = true;
    }
    const head = document.createElement("thead"), body = document.createElement("tbody"), titles = document.createElement("tr");
    const shared = (key) => key === "flops" || key === "seconds"; // columns with the share of the whole beside them
    const names = ["module", ...columns.flatMap(([name, key]) => (shared(key) ? [name, "share"] : [name]))];
    titles.append(...names.map((name) => lucidElement("th", name)));
    head.append(titles);
    function line(row) {
      const made = document.createElement("tr"), first = document.createElement("td");
      const turn = lucidElement("button", row.children.length ? (row.open ? "▾" : "▸") : "", { type: "button", className: "turn", disabled: !row.children.length,
        onclick: () => { row.open = !row.open; fill(); body.querySelector(`[data-turn="${CSS.escape(row.module)}"]`)?.focus(); } });
      turn.dataset.turn = row.module;
      turn.setAttribute("aria-label", `${row.open ? "close" : "open"} ${row.module || "the model"}`);
      if (row.children.length) turn.setAttribute("aria-expanded", row.open);
      const name = row.module.slice(row.module.lastIndexOf(".") + 1);
      const link = () => lucidElement("button", name, { type: "button", title: `show ${row.module} in the graph`, onclick: () => choose("m:" + row.module) });
      first.style.paddingLeft = `${0.4 + (row.level || 0)}rem`;
      first.append(turn, row.module ? link() : "the whole model");
      made.append(first);
      for (const [, key, shown] of columns) {
        made.append(lucidElement("td", row[key] ? shown(row[key]) : ""));
        if (!shared(key)) continue;
        const part = `${(100 * row[key] / total[key]).toFixed(1)}%`, cell = lucidElement("td", row[key] ? part.replace("%", " %") : "", { className: "share" });
        cell.style.setProperty("--part", part);
        made.append(cell);
      }
      return made;
    }
    const fill = () => body.replaceChildren(...rows.filter(visible).map(line));
    fill();
    byId("cost").append(head, body);
    const uncounted = total.uncounted ? ` ${many(total.uncounted, "node")} could not be counted.` : "";
    const merged = Math.round(100 * cost.merged / total.seconds);
    const times = !cost.timed ? "" : ` Time was measured by onnxruntime itself in the file for target “${cost.target}”, the median of ten runs.` +
      (cost.merged ? ` A node that onnxruntime makes of several is counted with the module that ran before it: ${merged} % of the time.` : "");
    byId("cost-note").textContent = `For ${Object.entries(cost.sizes).map(([k, v]) => `${k} = ${v}`).join(", ") || "inputs of fixed sizes"}. ` +
      `FLOPs are the work: a multiplication and an addition count as two.${uncounted}${times} Click a name to see the module in the graph.`;
  }
  if (total) table();
}
