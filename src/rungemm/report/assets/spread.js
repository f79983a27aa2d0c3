// Every sample of a measurement: what the medians and intervals are made of.
function spreadFigure() {
  const measured = [...by(DATA.records, (record) => record.samples)].map(([key, items]) => ({ ...items[0], key }));
  if (!measured.length) return null;
  const groupOf = (record) => `${record.suite}, ${kindOf(record)}${record.cold_l2 ? "" : ", warm"}`;
  const groups = unique(measured.sort(bySuite).map(groupOf));
  return figure({
    id: "spread", title: "Timing spread",
    note: "Every round's time a product, over the contender's own median, and the state of the card. Within a round all contenders ran once, in random order.",
    controls: [{ key: "suite", label: "suite", options: groups.map((group) => [group, group]) },
      { key: "of", label: "product", options: (state) => measured.filter((record) => groupOf(record) === state.suite).map((record) => [record.key, shapeOf(record)]) }],
    draw: (state, width) => drawSpread(DATA.samples[state.of], width),
  });
}

function medianOf(values) {
  const sorted = [...values].sort((a, b) => a - b), half = sorted.length >> 1;
  return sorted.length % 2 ? sorted[half] : (sorted[half - 1] + sorted[half]) / 2;
}

function drawSpread(measurement, width) {
  const lanes = Object.entries(measurement.us).sort((a, b) => rungOrder({ kernel: a[0] }) - rungOrder({ kernel: b[0] }));
  if (!lanes.length) return null;
  const narrow = width < 560, line = narrow ? 40 : 28, left = narrow ? 8 : 170;
  const frame = { left, top: 14, right: width - 20, bottom: 14 + lanes.length * line };
  const trace = measurement.clocks.trace, strips = trace && trace.seconds.length > 2 ? [["sm_mhz", "MHz", "SM clock"], ["watts", "W", "power"], ["celsius", "°C", "temperature"]] : [];
  const root = canvasOf(width, frame.bottom + (narrow ? 78 : 62) + strips.length * STRIP + (strips.length ? 24 : 0));
  const relative = lanes.map(([, us]) => us.map((value) => value / medianOf(us) - 1));
  const flat = relative.flat().map(Math.abs).sort((a, b) => a - b);
  const reach = Math.max(0.002, flat[Math.floor(0.98 * (flat.length - 1))] * 1.1);
  const x = linear([-reach, reach], [frame.left, frame.right]);
  root.append(axisBelow(frame, x, x.ticks(narrow ? 5 : 6), (tick) => `${tick > 0 ? "+" : ""}${number(100 * tick, 2)}%`, "time against the contender's median"));
  lanes.forEach(([name, us], row) => {
    const y = frame.top + row * line + (narrow ? 28 : line / 2), colour = colourOf(name);
    root.append(narrow ? label(left, y - 14, nameOf(name)) : label(left - 8, y + 4, nameOf(name).slice(0, 26), { "text-anchor": "end" }));
    relative[row].forEach((value, round) => {
      const at = Math.max(-reach, Math.min(reach, value));
      root.append(withTip(svg("circle", { cx: x(at), cy: y + ((round * 7) % 11) - 5, r: 3, fill: colour, opacity: 0.55 }), `${nameOf(name)}, round ${round + 1}\n${number(us[round], 4)} us (${(100 * value).toFixed(2)}%)`));
    });
    root.append(svg("line", { x1: x(0), x2: x(0), y1: y - 9, y2: y + 9, stroke: "var(--ink)", "stroke-width": 1.5 }));
  });
  const c = measurement.clocks, range = (field, unit) => (c[field] ? `${number(c[field].min)} to ${number(c[field].max)} ${unit}` : null);
  const throttle = Object.entries(c.throttle ?? {}).map(([reason, share]) => `${reason} ${percent(share)}`).join(", ");
  const state = [[range("sm_mhz", "MHz"), range("watts", "W"), range("celsius", "°C")].filter(Boolean).join(";  ") || "clocks were not sampled", throttle].filter(Boolean);
  (narrow ? state : [state.join(";  ")]).forEach((text, row) => root.append(label(narrow ? 8 : left, frame.bottom + 54 + 16 * row, text, { fill: "var(--soft)" })));
  strips.forEach(([field, unit, name], index) => drawStrip(root, trace, field, unit, name, { left: narrow ? 8 : left, right: frame.right, top: frame.bottom + (narrow ? 86 : 70) + index * STRIP, narrow }));
  if (strips.length) root.append(label(frame.right, frame.bottom + (narrow ? 86 : 70) + strips.length * STRIP + 10, `${number(trace.seconds.at(-1), 2)} s of timed rounds`, { "text-anchor": "end", fill: "var(--soft)" }));
  return { svg: root, columns: ["contender", "median us", "10%", "90%", "rounds"],
    rows: lanes.map(([name, us]) => {
      const sorted = [...us].sort((a, b) => a - b), at = (share) => sorted[Math.round(share * (sorted.length - 1))];
      return [nameOf(name), number(medianOf(us), 4), number(at(0.1), 4), number(at(0.9), 4), us.length];
    }) };
}

const STRIP = 46;
// One quantity of the card over the timed rounds, on a scale of its own.
function drawStrip(root, trace, field, unit, name, place) {
  const values = trace[field], least = Math.min(...values), most = Math.max(...values), room = Math.max(most - least, 0.02 * most);
  const from = place.left + (place.narrow ? 100 : 0), top = place.top + 6, bottom = place.top + STRIP - 10;
  const x = linear([0, trace.seconds.at(-1) || 1], [from, place.right]), y = linear([(least + most - room) / 2, (least + most + room) / 2], [bottom, top]);
  root.append(svg("line", { x1: from, x2: place.right, y1: bottom + 3, y2: bottom + 3, stroke: "var(--rule)" }));
  root.append(svg("path", { d: values.map((value, index) => `${index ? "L" : "M"}${x(trace.seconds[index]).toFixed(1)},${y(value).toFixed(1)}`).join(""), fill: "none", stroke: "var(--c5)", "stroke-width": 1.5 }));
  root.append(label(place.narrow ? place.left : place.left - 8, (top + bottom) / 2 + 4, `${name}, ${unit}`, { "text-anchor": place.narrow ? "start" : "end", fill: "var(--soft)" }));
  values.forEach((value, index) => root.append(withTip(svg("circle", { cx: x(trace.seconds[index]), cy: y(value), r: 5, fill: "transparent" }), `${name}: ${number(value, 4)} ${unit}\nat ${number(trace.seconds[index])} s`)));
}
