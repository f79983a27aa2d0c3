// Ratio to cuBLAS over M x N for a suite that spans them, one K at a time; red is slower, blue faster.
function heatFigure() {
  const suites = [...by(DATA.records.filter((record) => record.suite !== "ladder" && record.ratio !== null && record.kernel !== record.contender && record.batch === 1), (record) => record.suite)]
    .filter(([, items]) => unique(items.map((record) => record.m)).length > 1 && unique(items.map(columnOf)).length > 1).map(([suite]) => suite);
  if (!suites.length) return null;
  const rank = (suite) => ["cross27", "llm", "decode", "models"].indexOf(suite) >>> 0;
  suites.sort((a, b) => rank(a) - rank(b));
  const records = DATA.records.filter((record) => suites.includes(record.suite) && record.ratio !== null && record.kernel !== record.contender);
  records.sort((a, b) => suites.indexOf(a.suite) - suites.indexOf(b.suite));
  const keys = unique(records.map((record) => `${record.suite}, ${kindOf(record)}, ${nameOf(record.kernel)}`));
  return figure({
    id: "heat", title: "Ratio to cuBLAS by shape",
    note: "Blue is faster than cuBLAS, red is slower; the number is cuBLAS's time over ours. Rows are M, columns N x K.",
    controls: [{ key: "of", label: "suite", options: keys.map((key) => [key, key]) }],
    draw: (state, width) => drawHeat(records.filter((record) => `${record.suite}, ${kindOf(record)}, ${nameOf(record.kernel)}` === state.of), width),
  });
}

function columnOf(record) {
  return `${record.n} x ${record.k}`;
}

// A share from 0 (as slow as 0.8) to 1 (as fast as 1.25), 0.5 at parity, even in the logarithm.
function warmth(ratio) {
  return Math.max(0, Math.min(1, 0.5 + Math.log(ratio) / (2 * Math.log(1.25))));
}

function drawHeat(records, width) {
  if (!records.length) return null;
  const ms = unique(records.map((record) => record.m)).sort((a, b) => a - b);
  const columns = unique(records.map(columnOf)).sort((a, b) => a.localeCompare(b, "en", { numeric: true }));
  const left = 58, top = 92, cell = Math.max(38, Math.min(72, (width - left - 10) / columns.length)), height = 34;
  const total = Math.max(width, left + cell * columns.length + 10);
  const root = canvasOf(total, top + ms.length * height + 12);
  columns.forEach((column, index) => {
    const x = left + (index + 0.5) * cell;
    root.append(label(x, top - 8, column, { transform: `rotate(-40 ${x} ${top - 8})`, fill: "var(--soft)" }));
  });
  root.append(label(left - 8, top - 8, "M", { "text-anchor": "end", fill: "var(--soft)" }));
  ms.forEach((m, row) => root.append(label(left - 8, top + row * height + 22, m, { "text-anchor": "end", fill: "var(--soft)" })));
  for (const record of records) {
    const x = left + columns.indexOf(columnOf(record)) * cell, y = top + ms.indexOf(record.m) * height, share = warmth(record.ratio);
    const end = share < 0.5 ? "var(--heat-low)" : "var(--heat-high)", strength = Math.abs(share - 0.5) * 2;
    root.append(withTip(svg("g", {},
      svg("rect", { x: x + 1, y: y + 1, width: cell - 2, height: height - 2, rx: 3, fill: "var(--heat-mid)" }),
      svg("rect", { x: x + 1, y: y + 1, width: cell - 2, height: height - 2, rx: 3, fill: end, opacity: (0.9 * strength).toFixed(3) }),
      label(x + cell / 2, y + height / 2 + 4, record.ratio.toFixed(2), { "text-anchor": "middle", fill: strength > 0.55 ? "#ffffff" : "var(--ink)" })), describe(record)));
  }
  return { svg: root, legend: [["var(--heat-low)", "0.80x or slower"], ["var(--heat-mid)", "the same"], ["var(--heat-high)", "1.25x or faster"]], columns: COLUMNS, rows: records.map(rowOf) };
}
