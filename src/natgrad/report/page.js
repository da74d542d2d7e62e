"use strict";
// Draws the charts that the page names: <figure class="chart" data-x="epoch" data-y="test_ll" ...>.
// The numbers are in the JSON block; whatever they say is shown by textContent, never as HTML.
(() => {
  const { runs, curves: styles } = JSON.parse(document.getElementById("runs").textContent); // styles: of every column
  const figures = [...document.querySelectorAll("figure.chart")];
  const hidden = new Set(); // numbers of the runs that are switched off
  let from = 0.1; // the share of a run's rows that the vertical axis leaves out: the start dwarfs the rest
  let layersOf = 0; // the run whose layers are shown
  const COLORS = 8, BANDED = 4, MARGIN = { left: 52, right: 10, top: 8, bottom: 30 };
  const LAYER = /^(\w+)\.(\d+)\.(\w+)$/; // part of the model, number of the layer, quantity
  const LINES = ["solid", "dashed", "dotted"], PLAIN = { line: "solid", error: "" };

  // ---- elements

  function svg(name, attributes = {}, ...children) {
    const element = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    element.append(...children);
    return element;
  }

  function html(name, className, ...children) {
    const element = document.createElement(name);
    if (className) element.className = className;
    element.append(...children);
    return element;
  }

  // ---- what is drawn

  function own(object, name) { // names come from traces, and objects have names of their own
    return Object.hasOwn(object, name) ? object[name] : undefined;
  }

  function points(columns, x, y, error) {
    const [xs, ys, band] = [x, y, error].map((name) => own(columns, name) || []);
    return ys.map((value, i) => ({ x: xs[i], y: value, half: 2 * (band[i] || 0), share: ys.length > 1 ? i / (ys.length - 1) : 1 }));
  }

  // Curves of a chart: [{name, color, line, band, points}]; a point is dropped where it has no place.
  function curves({ x, y, log, layers }) {
    const wanted = layers === undefined ? ofRuns(x, y.split(" ")) : ofLayers(x, y);
    const has = (p) => p.x != null && p.y != null && (log === undefined || p.y > 0);
    return wanted.map((curve) => ({ ...curve, points: curve.points.filter(has) })).filter((c) => c.points.length);
  }

  function ofRuns(x, ys) {
    return runs.flatMap(({ name, columns }, run) => hidden.has(run) ? [] : ys.map((y) => {
      const { title, line, error } = own(styles, y) || PLAIN;
      return {
        name: ys.length > 1 ? `${name} ${title}` : name,
        color: run % COLORS, line, band: Boolean(error), points: points(columns, x, y, error),
      };
    }));
  }

  // The layers of a run: [{key, part, layer, quantity, line}]; every part of the model has its own line.
  function layersIn({ columns }) {
    const found = Object.keys(columns).map((key) => LAYER.exec(key)).filter(Boolean);
    const parts = [...new Set(found.map((match) => match[1]))];
    const line = (part) => LINES[Math.min(parts.indexOf(part), LINES.length - 1)];
    return found.map(([key, part, layer, quantity]) => ({ key, part, layer, quantity, line: line(part) }));
  }

  function ofLayers(x, wanted) {
    const run = runs[layersOf];
    return layersIn(run).filter(({ quantity }) => quantity === wanted).map(({ key, part, layer, line }) => ({
      name: `${part} ${layer}`, color: layer % COLORS, line, band: false, points: points(run.columns, x, key),
    }));
  }

  // ---- scales

  function extent(values) {
    return values.reduce(([low, high], v) => [Math.min(low, v), Math.max(high, v)], [Infinity, -Infinity]);
  }

  function ticks(low, high, count) {
    const rough = (high - low) / count, power = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 5, 10].map((m) => m * power).find((s) => s >= rough);
    const first = Math.ceil(low / step - 1e-9), last = Math.floor(high / step + 1e-9);
    return Array.from({ length: last - first + 1 }, (_, i) => (first + i) * step);
  }

  function linear(low, high, from, to, count) {
    if (low === high) [low, high] = [low - (Math.abs(low) || 1) / 2, high + (Math.abs(high) || 1) / 2];
    const scale = (v) => from + (to - from) * (v - low) / (high - low);
    return Object.assign(scale, { ticks: ticks(low, high, count), invert: (p) => low + (high - low) * (p - from) / (to - from) });
  }

  function decades(low, high) {
    const first = Math.floor(Math.log10(low)), last = Math.ceil(Math.log10(high));
    const step = Math.ceil((last - first) / 6) || 1;
    return Array.from({ length: last - first + 1 }, (_, i) => 10 ** (first + i)).filter((_, i) => i % step === 0);
  }

  function logarithmic(low, high, from, to, count) {
    if (low === high) [low, high] = [low / 3, high * 3];
    const inner = linear(Math.log10(low), Math.log10(high), from, to, count);
    const seen = (v) => v >= low * 0.999 && v <= high * 1.001;
    const round = (numbers) => decades(low, high).flatMap((power) => numbers.map((n) => n * power)).filter(seen);
    const marks = [[1], [1, 3], [1, 2, 5]].map(round).findLast((found) => found.length <= count + 1) || [];
    return Object.assign((v) => inner(Math.log10(v)), { ticks: marks.length >= 3 ? marks : ticks(low, high, count) });
  }

  function number(value) {
    if (value === 0) return "0";
    const size = Math.abs(value);
    if (size >= 1e5 || size < 1e-3) return value.toExponential(2).replace(/\.?0+e\+?/, "e");
    return String(Number(value.toPrecision(5)));
  }

  function percent(value) {
    return `${number(100 * value)}%`;
  }

  // ---- a chart

  function draw(figure) {
    const plot = figure.querySelector(".plot"), wanted = figure.dataset;
    const found = curves(wanted);
    figure.hidden = wanted.layers !== undefined && !found.length; // runs differ in what they have of layers
    const width = plot.clientWidth, height = plot.clientHeight;
    plot.replaceChildren();
    if (!found.length || width < 80) {
      plot.append(html("p", "", "Nothing to show."));
      return;
    }
    const all = found.flatMap((c) => c.points), late = all.filter((p) => p.share >= from);
    const ys = (late.length ? late : all).flatMap((p) => wanted.log === undefined ? [p.y - p.half, p.y + p.half] : [p.y]);
    const room = { right: width - MARGIN.right, bottom: height - MARGIN.bottom };
    const [left, right] = extent([0, ...all.map((p) => p.x)]);
    const x = linear(left, right > left ? right : left + 1, MARGIN.left, room.right, width / 75);
    const y = (wanted.log === undefined ? linear : logarithmic)(
      ...extent(ys), room.bottom - 4, MARGIN.top + 4, height / 36);
    const picture = svg("svg", { tabindex: 0, role: "img", "aria-label": `${wanted.title} against ${wanted.x}` },
      ...axes(x, y, room, wanted), inside(found, x, y, room));
    plot.append(picture);
    listen(plot, picture, { found, x, y, room, axis: wanted.x, format: formatOf(wanted) });
  }

  function formatOf({ percent: share }) {
    return share === undefined ? number : percent;
  }

  function axes(x, y, room, wanted) {
    const name = wanted.x, format = formatOf(wanted);
    const horizontal = y.ticks.flatMap((v) => [
      svg("line", { class: "grid", x1: MARGIN.left, x2: room.right, y1: y(v), y2: y(v) }),
      svg("text", { x: MARGIN.left - 6, y: y(v) + 4, "text-anchor": "end" }, format(v)),
    ]);
    const vertical = x.ticks.map((v) =>
      svg("text", { x: x(v), y: room.bottom + 14, "text-anchor": "middle" }, number(v)));
    const base = svg("line", { class: "axis", x1: MARGIN.left, x2: room.right, y1: room.bottom, y2: room.bottom });
    const below = svg("text", { x: (MARGIN.left + room.right) / 2, y: room.bottom + 27, "text-anchor": "middle" },
      name === "seconds" ? "seconds of training" : `${name}s`);
    return [...horizontal, ...vertical, base, below];
  }

  // The curves, in an inner picture that cuts off what lies outside the axes.
  function inside(found, x, y, room) {
    const frame = svg("svg", { x: MARGIN.left - 4, y: 0, width: room.right - MARGIN.left + 8, height: room.bottom });
    frame.setAttribute("viewBox", `${MARGIN.left - 4} 0 ${room.right - MARGIN.left + 8} ${room.bottom}`);
    for (const curve of found) {
      const at = (p, value = p.y) => `${x(p.x).toFixed(1)},${y(value).toFixed(1)}`;
      const group = svg("g", { class: `c${curve.color}` });
      if (curve.band && found.length <= BANDED) { // more of them hide each other
        const upper = curve.points.map((p) => at(p, p.y + p.half));
        const lower = curve.points.map((p) => at(p, p.y - p.half)).reverse();
        group.append(svg("path", { class: "band", d: `M${[...upper, ...lower].join("L")}Z` }));
      }
      group.append(svg("path", { class: `curve ${curve.line}`, d: `M${curve.points.map((p) => at(p)).join("L")}` }));
      if (curve.points.length <= 2) {
        for (const p of curve.points) group.append(svg("circle", { class: "dot", cx: x(p.x), cy: y(p.y), r: 3 }));
      }
      frame.append(group);
    }
    return frame;
  }

  // ---- the read-out: the value of every curve nearest to the pointer, or to the arrow keys' place

  function listen(plot, picture, chart) {
    const places = [...new Set(chart.found.flatMap((c) => c.points.map((p) => p.x)))].sort((a, b) => a - b);
    const nearest = (value) => places.reduce((best, v, i) => Math.abs(v - value) < Math.abs(places[best] - value) ? i : best, 0);
    const marks = svg("g"), readout = html("div", "readout");
    let place = places.length - 1;
    const show = (index) => { place = index; point(plot, marks, readout, chart, places[index]); };
    const clear = () => { marks.replaceChildren(); readout.remove(); };
    const follow = (event) => show(nearest(chart.x.invert(event.clientX - picture.getBoundingClientRect().left)));
    picture.append(marks);
    picture.addEventListener("pointermove", follow);
    picture.addEventListener("pointerdown", follow);
    picture.addEventListener("pointerleave", clear);
    picture.addEventListener("blur", clear);
    picture.addEventListener("keydown", (event) => {
      const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (!by) return;
      event.preventDefault();
      show(Math.min(Math.max(place + by, 0), places.length - 1));
    });
  }

  function point(plot, marks, readout, { found, x, y, room, axis, format }, value) {
    const near = found.map((curve) => ({ curve, p: curve.points.reduce((a, b) => Math.abs(b.x - value) < Math.abs(a.x - value) ? b : a) }));
    marks.replaceChildren(svg("line", { class: "guide", x1: x(value), x2: x(value), y1: MARGIN.top, y2: room.bottom }));
    for (const { curve, p } of near) {
      if (y(p.y) < room.bottom && y(p.y) > 0) marks.append(svg("circle", { class: `dot c${curve.color}`, cx: x(p.x), cy: y(p.y), r: 3.2 }));
    }
    const lines = near.map(({ curve, p }) => html("div", "",
      html("span", `swatch c${curve.color}`), html("b", "", format(p.y)), p.half ? ` ± ${format(p.half / 2)}` : "", `  ${curve.name}`));
    const head = axis === "seconds" ? `${number(value)} s` : `${axis} ${number(value)}`;
    readout.replaceChildren(html("div", "", head), ...lines);
    plot.append(readout);
    const wide = readout.offsetWidth, middle = (MARGIN.left + room.right) / 2;
    const beside = x(value) > middle ? x(value) - wide - 10 : x(value) + 10;
    readout.style.left = `${Math.max(0, Math.min(beside, plot.clientWidth - wide))}px`;
    readout.style.top = `${MARGIN.top}px`;
  }

  // ---- controls

  function pressed(button, yes) {
    button.setAttribute("aria-pressed", String(yes));
  }

  for (const button of document.querySelectorAll("[data-toggle]")) {
    button.addEventListener("click", () => {
      const run = Number(button.dataset.toggle), off = !hidden.delete(run);
      if (off) hidden.add(run);
      pressed(button, !off);
      document.querySelectorAll(`[data-card="${run}"]`).forEach((card) => { card.hidden = off; });
      figures.forEach(draw);
    });
  }

  for (const button of document.querySelectorAll("[data-from]")) {
    button.addEventListener("click", () => {
      from = Number(button.dataset.from);
      document.querySelectorAll("[data-from]").forEach((other) => pressed(other, other === button));
      figures.forEach(draw);
    });
  }

  const chooser = document.getElementById("layers-of");
  if (chooser) {
    const withLayers = runs.findIndex((run) => Object.keys(run.columns).some((key) => LAYER.test(key)));
    const choose = (run) => {
      layersOf = Number(run);
      const found = layersIn(runs[layersOf]), numbers = new Set(found.map(({ layer }) => layer));
      const lines = new Map(found.map(({ part, line }) => [part, line]));
      const keys = [...numbers].map((layer) => html("span", "", html("span", `swatch c${layer % COLORS}`), `layer ${layer}`));
      const parts = [...lines].map(([part, line]) => lines.size > 1 ? `${line}: ${part}` : part);
      const none = "Nothing was recorded of its layers.";
      document.getElementById("layer-keys").replaceChildren(...keys, parts.join(", ") || none);
      figures.filter((figure) => figure.dataset.layers !== undefined).forEach(draw);
    };
    chooser.value = Math.max(withLayers, 0);
    chooser.addEventListener("change", () => choose(chooser.value));
    choose(chooser.value);
  }

  // Pictures: one slider for all runs; each shows its latest up to that epoch.
  const slider = document.getElementById("time");
  if (slider) {
    const epochs = [...new Set(runs.flatMap((run) => run.frames.map((frame) => frame.epoch)))].sort((a, b) => a - b);
    const turn = () => {
      const epoch = epochs[slider.value];
      document.getElementById("epoch").textContent = epoch;
      runs.forEach(({ frames }, run) => {
        const frame = frames.filter((f) => f.epoch <= epoch).pop() || frames[0];
        for (const image of document.querySelectorAll(`#pictures [data-card="${run}"] img`)) {
          const kept = frame && own(frame.pictures, image.alt);
          image.closest("figure").hidden = !kept;
          if (kept) image.src = kept;
        }
      });
    };
    slider.max = epochs.length - 1;
    slider.value = slider.max;
    slider.addEventListener("input", turn);
    turn();
  }

  const redraw = new ResizeObserver((seen) => seen.forEach(({ target }) => draw(target.closest("figure"))));
  figures.forEach((figure) => redraw.observe(figure.querySelector(".plot")));
  document.documentElement.dataset.drawn = "yes";
})();
