// A suite as dots: the ratio of each shape with its interval, and the geometric mean.
function suiteFigure() {
  const records = DATA.records.filter((record) => record.ratio !== null && record.kernel !== record.contender && record.cold_l2 && !["ladder", "claims"].includes(record.suite)).sort(bySuite);
  if (!records.length) return null;
  const keys = unique(records.map((record) => `${record.suite}, ${kindOf(record)}`));
  return figure({
    id: "suite", title: "Every shape of a suite",
    note: "cuBLAS's time over ours, shape by shape; above 1 we are faster. The whisker is the 95% interval, the dashed line of each colour its geometric mean.",
    controls: [{ key: "of", label: "suite", options: keys.map((key) => [key, key]) },
      { key: "order", label: "order", options: [["shape", "by shape"], ["ratio", "by ratio"]] }],
    draw: (state, width) => drawSuite(records.filter((record) => `${record.suite}, ${kindOf(record)}` === state.of), state.order, width),
  });
}

function drawSuite(records, order, width) {
  const shapes = [...by(records, shapeOf)];
  const best = (items) => Math.max(...items.map((record) => record.ratio));
  if (order === "ratio") shapes.sort((a, b) => best(b[1]) - best(a[1]));
  else shapes.sort((a, b) => a[0].localeCompare(b[0], "en", { numeric: true }));
  const narrow = width < 560, line = 20, frame = { left: narrow ? 132 : 170, top: 34, right: width - 16, bottom: 34 + shapes.length * line };
  const root = canvasOf(width, frame.bottom + 42);
  const low = Math.min(0.9, ...records.map((record) => record.ratio_low)), high = Math.max(1.1, ...records.map((record) => record.ratio_high));
  const wide = high / low > 4, x = (wide ? logarithmic : linear)([low * 0.98, high * 1.02], [frame.left, frame.right], 2);
  const ticks = wide ? x.ticks() : x.ticks(narrow ? 4 : 8);
  root.append(axisBelow(frame, x, ticks, (tick) => number(tick), "ratio to cuBLAS"));
  root.append(svg("line", { x1: x(1), x2: x(1), y1: frame.top - 4, y2: frame.bottom, stroke: "var(--ref)", "stroke-width": 2 }));
  shapes.forEach(([shape, items], index) => {
    const y = frame.top + (index + 0.5) * line;
    root.append(label(frame.left - 8, y + 4, shape, { "text-anchor": "end" }));
    for (const record of items) {
      const colour = colourOf(record.kernel);
      root.append(withTip(svg("g", {},
        svg("rect", { x: x(record.ratio) - 8, y: y - 9, width: 16, height: 18, fill: "transparent" }),
        svg("line", { x1: x(record.ratio_low), x2: x(record.ratio_high), y1: y, y2: y, stroke: colour, "stroke-width": 2 }),
        svg("circle", { cx: x(record.ratio), cy: y, r: 4.5, fill: colour })), describe(record)));
    }
  });
  const legend = [];
  for (const [kernel, items] of by(records, (record) => record.kernel)) {
    const mean = Math.exp(items.reduce((sum, record) => sum + Math.log(record.ratio), 0) / items.length);
    root.append(svg("line", { x1: x(mean), x2: x(mean), y1: frame.top - 4, y2: frame.bottom, stroke: colourOf(kernel), "stroke-dasharray": "5 4", "stroke-width": 1.5 }));
    legend.push([colourOf(kernel), `${nameOf(kernel)}: geometric mean ${ratioText(mean)} of ${items.length}, least ${ratioText(Math.min(...items.map((record) => record.ratio)))}`]);
  }
  return { svg: root, legend, columns: COLUMNS, rows: shapes.flatMap(([, items]) => items.map(rowOf)) };
}
