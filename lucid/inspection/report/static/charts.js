"use strict";
// The charts, drawn by ECharts: one attention map, error by operation, quantized layers, time and memory by target.

function lucidCharts(data, colour) {
  const charts = new Map(); // id -> [chart, what gives its options]
  function chart(id, options) {
    if (!charts.has(id)) charts.set(id, [echarts.init(document.getElementById(id)), options]);
    charts.get(id)[1] = options;
    redraw(id);
  }
  function redraw(id) {
    const [drawn, options] = charts.get(id);
    drawn.setOption({ ...base(), ...options() }, true);
  }
  const base = () => ({
    animation: false, textStyle: { fontFamily: "system-ui, sans-serif", color: colour("text") },
    aria: { enabled: true }, grid: { left: 8, right: 16, top: 28, bottom: 8, containLabel: true },
  });
  const axis = (more) => ({
    axisLine: { lineStyle: { color: colour("line") } }, axisLabel: { color: colour("dim") },
    splitLine: { lineStyle: { color: colour("line"), opacity: 0.5 } }, nameTextStyle: { color: colour("dim") }, ...more,
  });
  const tooltip = (formatter, trigger = "item") => ({
    trigger, confine: true, formatter, backgroundColor: colour("panel"), borderColor: colour("line"), textStyle: { color: colour("text") },
  });
  const escaped = (text) => String(text).replace(/[&<>"]/g, (c) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" })[c]);

  // Attention -----------------------------------------------------------------------------------------------------------

  function labels(count, whole) {
    const known = data.attention.tokens.length >= count && data.attention.tokens.length === whole;
    return Array.from({ length: count }, (_, i) => (known ? data.attention.tokens[i] : String(i)));
  }
  // Small weights are lifted by a square root: in a long text most are small, and would all look alike.
  const rgb = (name) => [1, 3, 5].map((at) => parseInt(colour(name).slice(at, at + 2), 16));
  function shades(steps) {
    const from = rgb("back"), to = rgb("accent");
    return Array.from({ length: steps }, (_, i) => from.map((start, c) => Math.round(start + (to[c] - start) * Math.sqrt(i / (steps - 1)))));
  }
  // Draws weights (queries x keys), row by row, and returns the largest.
  function showMap({ queries, keys }, weights) {
    const cells = Array.from(weights, (weight, i) => [i % keys, Math.floor(i / keys), weight]);
    const most = weights.reduce((a, b) => Math.max(a, b), 0);
    const whole = data.attention.cut || Math.max(queries, keys);
    const x = labels(keys, whole), y = labels(queries, whole);
    chart("map", () => ({
      grid: { left: 8, right: 8, top: 8, bottom: 44, containLabel: true },
      xAxis: axis({ type: "category", data: x.map((t, i) => t + "\u200b".repeat(i)),
        axisLabel: { color: colour("dim"), rotate: 60 }, splitLine: { show: false } }),
      yAxis: axis({ type: "category", data: y.map((t, i) => t + "\u200b".repeat(i)), inverse: true, splitLine: { show: false } }),
      visualMap: { min: 0, max: most || 1, orient: "horizontal", left: "center", bottom: 4, itemHeight: 140, itemWidth: 12,
        text: [most.toFixed(3), "0"], precision: 3, textStyle: { color: colour("dim") }, inRange: { color: shades(17).map((shade) => `rgb(${shade.join(",")})`) } },
      tooltip: tooltip((p) => `${escaped(y[p.value[1]])} → ${escaped(x[p.value[0]])}: ${p.value[2].toFixed(3)}`),
      series: [{ type: "heatmap", data: cells, progressive: 0, emphasis: { itemStyle: { borderColor: colour("text"), borderWidth: 1 } } }],
    }));
    return most;
  }

  // Error, latency, memory -----------------------------------------------------------------------------------------------

  // Modules below a chart of many points: the runs of points that belong to one module, as deep as there is room for.
  function groups(paths, room) {
    const at = (depth) => {
      const found = [];
      paths.forEach((path, i) => {
        const name = path.split(".").slice(0, depth).join(".");
        if (!found.length || found.at(-1).name !== name) found.push({ name, first: i });
      });
      return found;
    };
    const deepest = Math.max(1, ...paths.map((path) => path.split(".").length));
    let taken = at(1);
    for (let depth = 2; depth <= deepest && at(depth).length <= room; depth++) taken = at(depth);
    const prefix = commonPrefix(taken.map((group) => group.name).filter(Boolean));
    const apart = paths.length / room; // fewest points between two labels, which are in the middles of groups, the largest first
    taken.forEach((group, i) => {
      group.last = (taken[i + 1]?.first ?? paths.length) - 1;
      group.middle = Math.floor((group.first + group.last) / 2);
      group.label = group.name.slice(prefix.length) || group.name || "the model itself";
    });
    const labelled = new Map();
    for (const group of [...taken].sort((a, b) => b.last - b.first - (a.last - a.first))) {
      if ([...labelled.keys()].every((other) => Math.abs(other - group.middle) >= apart)) labelled.set(group.middle, group.label);
    }
    return { labelled, starts: new Set(taken.map((group) => group.first)) };
  }
  function commonPrefix(names) {
    if (names.length < 2) return "";
    const parts = names.map((name) => name.split("."));
    let depth = 0;
    while (parts.every((each) => each.length > depth + 1 && each[depth] === parts[0][depth])) depth += 1;
    return depth ? parts[0].slice(0, depth).join(".") + "." : "";
  }
  function moduleAxis(id, paths) {
    const room = Math.max(4, Math.floor(document.getElementById(id).clientWidth / 55));
    const { labelled, starts } = groups(paths, room);
    return axis({ type: "category", data: paths.map((_, i) => i), boundaryGap: true, axisTick: { interval: (i) => starts.has(i) },
      splitLine: { show: true, interval: (i) => starts.has(i), lineStyle: { color: colour("line"), opacity: 0.5 } },
      axisLabel: { color: colour("dim"), rotate: labelled.size > 4 ? 45 : 0, interval: (i) => labelled.has(i), hideOverlap: true,
        formatter: (i) => { const text = labelled.get(Number(i)) ?? ""; return text.length > 22 ? "…" + text.slice(-21) : text; } } });
  }
  const zoomed = (count, colours) => (count > 80 ? [{ type: "slider", height: 18, bottom: 6, ...colours }] : []);
  const sliderColours = () => ({ borderColor: colour("line"), textStyle: { color: colour("dim") }, labelFormatter: "" });

  function showErrors(choose) {
    const shown = data.errors.filter((e) => e.max_abs !== null);
    const positive = shown.map((e) => e.max_abs).filter((v) => v > 0);
    const least = positive.length ? Math.min(...positive) : 1e-9;
    chart("errors", () => ({
      xAxis: moduleAxis("errors", shown.map((e) => e.module)),
      yAxis: axis({ type: "log", name: "largest difference", nameLocation: "end", min: 10 ** Math.floor(Math.log10(least)),
        nameTextStyle: { color: colour("dim"), align: "left" }, axisLabel: { color: colour("dim"), formatter: (v) => v.toExponential(0) } }),
      dataZoom: zoomed(shown.length, sliderColours()),
      grid: { left: 44, right: 24, top: 32, bottom: shown.length > 80 ? 36 : 8, containLabel: true },
      tooltip: tooltip((p) => { const e = shown[p[0].dataIndex];
        return `${escaped(e.module || "the model itself")}<br>${escaped(e.op)}: ${e.max_abs.toExponential(2)}`; }, "axis"),
      series: [{ type: "line", step: "middle", showSymbol: true, symbolSize: 5, color: colour("accent"),
        connectNulls: true, data: shown.map((e) => e.max_abs || null) }],
    }));
    charts.get("errors")[0].on("click", (p) => choose(shown[p.dataIndex].id));
  }
  function showPrecision() {
    const layers = data.precision.layers;
    const db = (value) => (value === null ? "no error" : `${value.toFixed(1)} dB`);
    chart("precision", () => ({
      legend: { top: 0, right: 16, textStyle: { color: colour("dim") } },
      xAxis: moduleAxis("precision", layers.map((l) => l.module)),
      yAxis: axis({ type: "value", name: "dB" }),
      dataZoom: zoomed(layers.length, sliderColours()),
      grid: { left: 44, right: 24, top: 32, bottom: layers.length > 80 ? 36 : 8, containLabel: true },
      tooltip: tooltip((p) => { const l = layers[p[0].dataIndex];
        return `${escaped(l.module)}, ${l.bits} bits<br>alone ${db(l.alone)}<br>in the model ${db(l.in_model)}`; }, "axis"),
      series: [["alone", "accent"], ["in_model", "line"]].map(([key, shade]) => ({ name: key.replace("_", " the "), type: "bar",
        color: colour(shade), barMaxWidth: 18, data: layers.map((l) => l[key]) })),
    }));
  }
  function bars(id, title, unit, series) {
    const good = data.targets.filter((t) => !t.problem);
    chart(id, () => ({
      title: { text: title, textStyle: { fontSize: 13, fontWeight: 500, color: colour("dim") } },
      grid: { left: 8, right: 48, top: 32, bottom: 8, containLabel: true },
      xAxis: axis({ type: "value" }),
      yAxis: axis({ type: "category", data: good.map((t) => t.target), inverse: true }),
      tooltip: tooltip((p) => `${escaped(p.name)}, ${escaped(p.seriesName)}: ${p.value.toPrecision(4)} ${unit}`),
      series: series.map(([name, read, shade]) => ({ name, type: "bar", color: colour(shade), barMaxWidth: 22,
        label: { show: true, position: "right", color: colour("dim"), formatter: (p) => p.value.toPrecision(3) }, data: good.map(read) })),
    }));
  }
  function showTargets() {
    bars("latency", "time of a run, ms: median and 90 %", "ms", [["median", (t) => t.p50 * 1e3, "accent"], ["90 %", (t) => t.p90 * 1e3, "line"]]);
    bars("memory", "memory of model and run, MB", "MB", [["memory", (t) => t.model_memory / 1e6, "accent"]]);
  }

  window.addEventListener("resize", () => { for (const [id, [drawn]] of charts) { drawn.resize(); redraw(id); } });
  return { shades, showMap, showErrors, showPrecision, showTargets, restyle() { for (const id of charts.keys()) redraw(id); } };
}
