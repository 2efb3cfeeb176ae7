"use strict";
// Attention maps: a small one of every head of a layer, and one enlarged.

function lucidAttention(data, charts) {
  const byId = (id) => document.getElementById(id);
  let head = "mean"; // or a number

  function bytesOf(layer) {
    layer.bytes ??= Uint8Array.from(atob(layer.data), (c) => c.charCodeAt(0));
    return layer.bytes;
  }
  // The weights (queries x keys) of a head, or their mean over the heads.
  function weightsOf(layer, which) {
    const bytes = bytesOf(layer), size = layer.queries * layer.keys, found = new Float32Array(size), unit = layer.top / 255;
    const heads = which === "mean" ? Array.from({ length: layer.heads }, (_, h) => h) : [which];
    for (const h of heads) for (let i = 0; i < size; i++) found[i] += bytes[h * size + i] * unit / heads.length;
    return found;
  }
  function paint(canvas, layer, weights) {
    canvas.width = layer.keys;
    canvas.height = layer.queries;
    const image = new ImageData(layer.keys, layer.queries), shades = charts.shades(256);
    weights.forEach((weight, i) => image.data.set([...shades[Math.min(255, Math.round(255 * weight / layer.top))], 255], 4 * i));
    canvas.getContext("2d").putImageData(image, 0, 0);
  }

  const nameOf = (which) => (which === "mean" ? "mean of all heads" : `head ${which + 1}`);
  function enlarge(which) {
    const index = Number(byId("layer").value), layer = data.layers[index];
    head = which;
    for (const tile of byId("heads").children) tile.setAttribute("aria-pressed", tile.dataset.head === String(which));
    byId("map-title").textContent = `${layer.module}, ${nameOf(which)}`;
    const most = charts.showMap(layer, weightsOf(layer, which));
    const cut = data.cut ? ` Shown are the first ${layer.queries} of ${data.cut} positions.` : "";
    byId("map-note").textContent = `The largest weight here is ${most.toFixed(3)}.${cut}`;
  }
  function showLayer() {
    const index = Number(byId("layer").value), layer = data.layers[index];
    if (head !== "mean" && head >= layer.heads) head = "mean";
    byId("layer-name").textContent = `${index + 1} of ${data.layers.length}: ${layer.module}`;
    byId("layer").setAttribute("aria-valuetext", byId("layer-name").textContent);
    const heads = Array.from({ length: layer.heads }, (_, h) => h);
    byId("heads").replaceChildren(...[...(layer.heads > 1 ? ["mean"] : []), ...heads].map((which) => {
      const tile = lucidElement("button", undefined, { type: "button", onclick: () => enlarge(which) }), canvas = document.createElement("canvas");
      tile.dataset.head = which;
      paint(canvas, layer, weightsOf(layer, which));
      tile.append(canvas, which === "mean" ? "mean" : which + 1);
      tile.setAttribute("aria-label", nameOf(which));
      return tile;
    }));
    enlarge(layer.heads > 1 ? head : 0);
  }
  if (data.layers.length) {
    byId("layer").max = data.layers.length - 1;
    byId("layer").hidden = data.layers.length === 1;
    byId("layer").oninput = showLayer;
    showLayer();
  }
  return { restyle() { if (data.layers.length) showLayer(); } };
}
