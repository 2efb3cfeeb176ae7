"use strict";
// The charts, drawn by ECharts: attention maps, error by node, latency and memory by target.

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

  function weights(layer) {
    layer.bytes ??= Uint8Array.from(atob(layer.data), (c) => c.charCodeAt(0));
    return layer.bytes;
  }
  function labels(count, whole) {
    const known = data.attention.tokens.length >= count && data.attention.tokens.length === whole;
    return Array.from({ length: count }, (_, i) => (known ? data.attention.tokens[i] : String(i)));
  }
  // head: a number, or "mean"
  function showMap(index, head) {
    const layer = data.attention.layers[index];
    const bytes = weights(layer), { queries, keys, heads, top } = layer, size = queries * keys;
    const at = (h, i) => (bytes[h * size + i] * top) / 255;
    const cells = [];
    let most = 0;
    for (let i = 0; i < size; i++) {
      let value = 0;
      if (head === "mean") for (let h = 0; h < heads; h++) value += at(h, i) / heads;
      else value = at(head, i);
      most = Math.max(most, value);
      cells.push([i % keys, Math.floor(i / keys), value]);
    }
    const whole = data.attention.cut || Math.max(queries, keys);
    const x = labels(keys, whole), y = labels(queries, whole);
    chart("map", () => ({
      grid: { left: 8, right: 8, top: 8, bottom: 56, containLabel: true },
      xAxis: axis({ type: "category", data: x.map((t, i) => t + "\u200b".repeat(i)),
        axisLabel: { color: colour("dim"), rotate: 60 }, splitLine: { show: false } }),
      yAxis: axis({ type: "category", data: y.map((t, i) => t + "\u200b".repeat(i)), inverse: true, splitLine: { show: false } }),
      visualMap: { min: 0, max: most || 1, calculable: true, orient: "horizontal", left: "center", bottom: 0, itemHeight: 110,
        precision: 3, textStyle: { color: colour("dim") }, inRange: { color: [colour("panel"), colour("accent")] } },
      tooltip: tooltip((p) => `${escaped(y[p.value[1]])} → ${escaped(x[p.value[0]])}: ${p.value[2].toFixed(3)}`),
      series: [{ type: "heatmap", data: cells, progressive: 0, emphasis: { itemStyle: { borderColor: colour("text"), borderWidth: 1 } } }],
    }));
    return { most, labels: y };
  }

  // Error, latency, memory -----------------------------------------------------------------------------------------------

  function showErrors() {
    const shown = data.errors.filter((e) => e.max_abs !== null);
    const positive = shown.map((e) => e.max_abs).filter((v) => v > 0);
    const least = positive.length ? Math.min(...positive) : 1e-9;
    chart("errors", () => ({
      xAxis: axis({ type: "category", data: shown.map((_, i) => i), axisLabel: { show: false }, splitLine: { show: false } }),
      yAxis: axis({ type: "log", name: "max abs", min: 10 ** Math.floor(Math.log10(least)),
        axisLabel: { color: colour("dim"), formatter: (v) => v.toExponential(0) } }),
      dataZoom: shown.length > 80 ? [{ type: "inside" }, { type: "slider", height: 18, bottom: 2 }] : [],
      grid: { left: 8, right: 16, top: 28, bottom: shown.length > 80 ? 32 : 8, containLabel: true },
      tooltip: tooltip((p) => { const e = shown[p[0].dataIndex];
        return `${escaped(e.module || "the model itself")}<br>${escaped(e.op)}: ${e.max_abs.toExponential(2)}`; }, "axis"),
      series: [{ type: "line", step: "middle", showSymbol: true, symbolSize: 5, color: colour("accent"),
        connectNulls: true, data: shown.map((e) => e.max_abs || null) }],
    }));
  }
  function showPrecision() {
    const layers = data.precision.layers, many = layers.length > 80;
    const db = (value) => (value === null ? "no error" : `${value.toFixed(1)} dB`);
    chart("precision", () => ({
      legend: { top: 0, right: 16, textStyle: { color: colour("dim") } },
      xAxis: axis({ type: "category", data: layers.map((_, i) => i), axisLabel: { show: false }, splitLine: { show: false } }),
      yAxis: axis({ type: "value", name: "dB" }),
      dataZoom: many ? [{ type: "inside" }, { type: "slider", height: 18, bottom: 2 }] : [],
      grid: { left: 8, right: 16, top: 28, bottom: many ? 32 : 8, containLabel: true },
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
    bars("latency", "latency, ms (median and 90 %)", "ms", [["median", (t) => t.p50 * 1e3, "accent"], ["90 %", (t) => t.p90 * 1e3, "line"]]);
    bars("memory", "memory of model and run, MB", "MB", [["memory", (t) => t.model_memory / 1e6, "accent"]]);
  }

  window.addEventListener("resize", () => { for (const [drawn] of charts.values()) drawn.resize(); });
  return { showMap, showErrors, showPrecision, showTargets, restyle() { for (const id of charts.keys()) redraw(id); } };
}
