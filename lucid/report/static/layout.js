"use strict";
// Where the boxes of the picture are. Dagre places the parts of one module at a time, from the inside out: placing all
// boxes at once takes half a minute for a model of 32 layers, this a fraction of a second.

const lucidLayout = (() => {
  const FRAME = 14, TITLE = 16, BESIDE = 30, BELOW = 42; // room inside a frame, for its title, between boxes
  const SIZES = [{ selector: "node", style: { width: "data(w)", height: "data(h)", shape: "rectangle" } }];

  // The centres of boxes {id, w, h} that arrows {source, target} join; from the top down.
  function placed(boxes, arrows) {
    if (boxes.length === 1) return new Map([[boxes[0].id, { x: 0, y: 0 }]]);
    const plane = cytoscape({ headless: true, styleEnabled: true, style: SIZES, elements: [...boxes, ...arrows].map((data) => ({ data })) });
    plane.layout({ name: "dagre", rankDir: "TB", nodeSep: BESIDE, rankSep: BELOW, animate: false, fit: false }).run();
    const found = new Map(plane.nodes().map((node) => [node.id(), { ...node.position() }]));
    plane.destroy();
    return found;
  }

  // The centre of each box without parts; `elements` are Cytoscape's, with sizes `w` and `h` of those boxes.
  function positions(elements) {
    const data = new Map(elements.map((element) => [element.data.id, element.data]));
    const inside = new Map(); // frame, or undefined for the whole -> boxes in it
    const arrows = new Map(); // the same -> arrows between these boxes
    const boxes = [...data.values()].filter((each) => !each.source);
    for (const box of boxes) inside.set(box.parent, [...(inside.get(box.parent) || []), box]);
    const around = (id) => { const found = []; for (let each = data.get(id); each; each = data.get(each.parent)) found.unshift(each.id); return found; };
    for (const arrow of data.values()) {
      if (!arrow.source) continue;
      const from = around(arrow.source), to = around(arrow.target);
      let depth = 0;
      while (from[depth] === to[depth]) depth += 1;
      const frame = depth ? from[depth - 1] : undefined;
      if (!arrows.has(frame)) arrows.set(frame, new Map());
      const source = from[depth], target = to[depth], id = `${source}>${target}`;
      arrows.get(frame).set(id, { id, source, target });
    }
    const plans = new Map(); // frame -> the centres of what is in it, relative to its own
    function size(frame) {
      const parts = inside.get(frame).map((box) => (inside.has(box.id) ? { id: box.id, ...size(box.id) } : { id: box.id, w: box.w, h: box.h }));
      const centres = placed(parts, [...(arrows.get(frame) || new Map()).values()]);
      const edge = (sign, axis, length) => sign * Math.max(...parts.map((part) => sign * centres.get(part.id)[axis] + part[length] / 2));
      const left = edge(-1, "x", "w"), right = edge(1, "x", "w"), top = edge(-1, "y", "h"), bottom = edge(1, "y", "h");
      for (const centre of centres.values()) {
        centre.x -= (left + right) / 2;
        centre.y -= (top + bottom) / 2 - TITLE / 2;
      }
      plans.set(frame, centres);
      return { w: right - left + 2 * FRAME, h: bottom - top + 2 * FRAME + TITLE };
    }
    const found = new Map();
    function settle(frame, x, y) {
      for (const [id, centre] of plans.get(frame)) {
        const at = { x: x + centre.x, y: y + centre.y };
        if (inside.has(id)) settle(id, at.x, at.y);
        else found.set(id, at);
      }
    }
    if (boxes.length) {
      size(undefined);
      settle(undefined, 0, 0);
    }
    return found;
  }
  return { positions };
})();
