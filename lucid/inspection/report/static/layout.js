"use strict";
// Where the boxes of the picture are. Dagre places the parts of one module at a time, from the inside out: placing all
// boxes at once takes half a minute for a model of 32 layers, this a fraction of a second.

const lucidLayout = (() => {
  const FRAME = 14, TITLE = 16, BESIDE = 30, BELOW = 42; // room inside a frame, for its title, between boxes
  const MANY = 120; // boxes side by side, beyond which dagre takes too long
  const SIZES = [{ selector: "node", style: { width: "data(w)", height: "data(h)", shape: "rectangle" } }];

  // The centres of boxes {id, w, h} that arrows {source, target} join; from the top down.
  function placed(boxes, arrows) {
    if (boxes.length === 1) return new Map([[boxes[0].id, { x: 0, y: 0 }]]);
    if (boxes.length > MANY) return inRows(boxes, arrows);
    const plane = cytoscape({ headless: true, styleEnabled: true, style: SIZES, elements: [...boxes, ...arrows].map((data) => ({ data })) });
    plane.layout({ name: "dagre", rankDir: "TB", nodeSep: BESIDE, rankSep: BELOW, animate: false, fit: false }).run();
    const found = new Map(plane.nodes().map((node) => [node.id(), { ...node.position() }]));
    plane.destroy();
    return found;
  }

  // The same for files without modules, whose thousands of boxes take dagre minutes: each box is in the row below the
  // last of those that lead to it, or above the first that it leads to, and as far below them as there is room.
  function inRows(boxes, arrows) {
    const number = new Map(boxes.map((box, i) => [box.id, i])), above = boxes.map(() => []), below = boxes.map(() => []);
    for (const { source, target } of arrows) {
      const from = number.get(source), to = number.get(target);
      if (from >= to) continue; // the way back of a cycle
      above[to].push(from);
      below[from].push(to);
    }
    const row = [], x = [], rows = [];
    boxes.forEach((_, i) => { row[i] = above[i].reduce((last, from) => Math.max(last, row[from] + 1), 0); });
    boxes.forEach((_, i) => { if (!above[i].length && below[i].length) row[i] = Math.max(0, below[i].reduce((first, to) => Math.min(first, row[to]), Infinity) - 1); });
    boxes.forEach((_, i) => { (rows[row[i]] ??= []).push(i); });
    const found = new Map();
    let y = 0;
    for (const line of rows.filter(Boolean)) {
      const middle = (i) => above[i].reduce((sum, from) => sum + (x[from] ?? 0), 0) / Math.max(1, above[i].length);
      const wished = line.map((i) => [middle(i), i]).sort((a, b) => a[0] - b[0]);
      let right = -Infinity;
      for (const [wish, i] of wished) {
        x[i] = Math.max(wish, right + boxes[i].w / 2);
        right = x[i] + boxes[i].w / 2 + BESIDE;
      }
      const shift = wished.reduce((sum, [wish, i]) => sum + wish - x[i], 0) / wished.length;
      const high = Math.max(...line.map((i) => boxes[i].h));
      for (const i of line) {
        x[i] += shift;
        found.set(boxes[i].id, { x: x[i], y: y + high / 2 });
      }
      y += high + BELOW;
    }
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
