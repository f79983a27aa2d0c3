// Ratio to cuBLAS over M x N: a grid for each K where a suite crosses all three, else a column for each N x K.
function heatFigure() {
  const measured = DATA.records.filter((record) => record.ratio !== null && record.kernel !== record.contender && record.batch === 1 && record.cold_l2 && !["ladder", "claims"].includes(record.suite));
  const suites = [...by(measured, (record) => record.suite)]
    .filter(([, items]) => unique(items.map((record) => record.m)).length > 1 && unique(items.map(columnOf)).length > 1 && repeats(items)).map(([suite]) => suite);
  if (!suites.length) return null;
  suites.sort((a, b) => suiteOrder(a) - suiteOrder(b));
  const records = measured.filter((record) => suites.includes(record.suite));
  records.sort((a, b) => suites.indexOf(a.suite) - suites.indexOf(b.suite));
  const keyOf = (record) => `${record.suite}, ${kindOf(record)}, ${nameOf(record.kernel)}`;
  return figure({
    id: "heat", title: "Ratio to cuBLAS by shape",
    note: "Blue is faster than cuBLAS, red is slower; the number is cuBLAS's time over ours. Rows are M.",
    controls: [{ key: "of", label: "suite", options: unique(records.map(keyOf)).map((key) => [key, key]) }],
    draw: (state, width) => drawHeat(records.filter((record) => keyOf(record) === state.of), width),
  });
}

function columnOf(record) {
  return `${record.n} x ${record.k}`;
}
// A map needs a row and a column that several products share; squares, say, are a line.
function repeats(items) {
  return unique(items.map(columnOf)).length < items.length / 1.5;
}

// A share from 0 (as slow as 0.8) to 1 (as fast as 1.25), 0.5 at parity, even in the logarithm.
function warmth(ratio) {
  return Math.max(0, Math.min(1, 0.5 + Math.log(ratio) / (2 * Math.log(1.25))));
}

function heatCell(record, x, y, width, height) {
  const share = warmth(record.ratio), end = share < 0.5 ? "var(--heat-low)" : "var(--heat-high)", strength = Math.abs(share - 0.5) * 2;
  return withTip(svg("g", {},
    svg("rect", { x: x + 1, y: y + 1, width: width - 2, height: height - 2, rx: 3, fill: "var(--heat-mid)" }),
    svg("rect", { x: x + 1, y: y + 1, width: width - 2, height: height - 2, rx: 3, fill: end, opacity: (0.9 * strength).toFixed(3) }),
    label(x + width / 2, y + height / 2 + 4, record.ratio.toFixed(2), { "text-anchor": "middle", fill: strength > 0.55 ? "#ffffff" : "var(--ink)" })), describe(record));
}

const HEAT_LEGEND = [["var(--heat-low)", "0.80x or slower"], ["var(--heat-mid)", "the same"], ["var(--heat-high)", "1.25x or faster"]];

function drawHeat(records, width) {
  if (!records.length) return null;
  const values = (key) => unique(records.map((record) => record[key])).sort((a, b) => a - b);
  const ms = values("m"), ns = values("n"), ks = values("k");
  const crossed = ms.length > 1 && ns.length > 1 && records.length === ms.length * ns.length * ks.length;
  const root = crossed ? heatGrids(records, ms, ns, ks, width) : heatColumns(records, ms, width);
  return { svg: root, legend: HEAT_LEGEND, columns: COLUMNS, rows: records.map(rowOf) };
}

function heatGrids(records, ms, ns, ks, width) {
  const narrow = width < 560, left = 52, top = 44, height = 34, gap = 30;
  const across = narrow ? 1 : ks.length, cell = Math.max(44, Math.min(96, (width - (left + gap) * across + gap) / across / ns.length));
  const wide = left + cell * ns.length + gap, tall = top + height * ms.length + 22;
  const root = canvasOf(width, tall * Math.ceil(ks.length / across));
  ks.forEach((k, index) => {
    const x0 = left + (index % across) * wide, y0 = top + Math.floor(index / across) * tall;
    root.append(label(x0, y0 - 26, `K = ${k}`, { "font-weight": 600 }), label(x0 - 8, y0 - 8, "M \\ N", { "text-anchor": "end", fill: "var(--soft)" }));
    ns.forEach((n, column) => root.append(label(x0 + (column + 0.5) * cell, y0 - 8, n, { "text-anchor": "middle", fill: "var(--soft)" })));
    ms.forEach((m, row) => root.append(label(x0 - 8, y0 + row * height + 22, m, { "text-anchor": "end", fill: "var(--soft)" })));
    for (const record of records) if (record.k === k) root.append(heatCell(record, x0 + ns.indexOf(record.n) * cell, y0 + ms.indexOf(record.m) * height, cell, height));
  });
  return root;
}

function heatColumns(records, ms, width) {
  const columns = unique(records.map(columnOf)).sort((a, b) => a.localeCompare(b, "en", { numeric: true }));
  const left = 58, top = 92, cell = Math.max(42, Math.min(72, (width - left - 40) / columns.length)), height = 34;
  const root = canvasOf(Math.max(width, left + cell * columns.length + 40), top + ms.length * height + 12);
  columns.forEach((column, index) => {
    const x = left + (index + 0.5) * cell;
    root.append(label(x, top - 8, column, { transform: `rotate(-40 ${x} ${top - 8})`, fill: "var(--soft)" }));
  });
  root.append(label(left - 8, top - 26, "N x K", { "text-anchor": "end", fill: "var(--soft)" }), label(left - 8, top - 8, "M", { "text-anchor": "end", fill: "var(--soft)" }));
  ms.forEach((m, row) => root.append(label(left - 8, top + row * height + 22, m, { "text-anchor": "end", fill: "var(--soft)" })));
  for (const record of records) root.append(heatCell(record, left + columns.indexOf(columnOf(record)) * cell, top + ms.indexOf(record.m) * height, cell, height));
  return root;
}
