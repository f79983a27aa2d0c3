// Every suite in one line: the geometric mean of its ratios, and the range from its least to its most.
function glanceFigure() {
  const records = DATA.records.filter((record) => record.ratio !== null && record.kernel !== record.contender && record.cold_l2 && record.data === "normal" && !["ladder", "claims"].includes(record.suite));
  if (!records.length) return null;
  const kernels = unique(records.map((record) => record.kernel)).sort((a, b) => rungOrder({ kernel: a }) - rungOrder({ kernel: b }));
  return figure({
    id: "glance", title: "At a glance",
    note: "cuBLAS's time over ours, by suite: right of 1 we are faster. The dot is the geometric mean, the bar reaches from the least ratio to the most.",
    controls: [{ key: "who", label: "kernels", options: [["", "all"], ...kernels.map((kernel) => [kernel, nameOf(kernel)])] }],
    draw: (state, width) => drawGlance(records.filter((record) => !state.who || record.kernel === state.who), width),
  });
}

function geomean(values) {
  return Math.exp(values.reduce((sum, value) => sum + Math.log(value), 0) / values.length);
}

function drawGlance(records, width) {
  const rows = [...by(records, (record) => `${record.suite}|${kindOf(record)}|${record.kernel}`).values()].map((items) => {
    const ratios = items.map((record) => record.ratio);
    return { suite: items[0].suite, kind: kindOf(items[0]), kernel: items[0].kernel, count: items.length, mean: geomean(ratios), least: Math.min(...ratios), most: Math.max(...ratios), faster: ratios.filter((ratio) => ratio > 1).length };
  });
  rows.sort((a, b) => bySuite(a, b) || a.kind.localeCompare(b.kind) || rungOrder(a) - rungOrder(b));
  const narrow = width < 560, line = narrow ? 44 : 26, left = narrow ? 10 : 270, right = narrow ? 14 : 220;
  const frame = { left, top: narrow ? 12 : 26, right: width - right, bottom: (narrow ? 12 : 26) + rows.length * line };
  const root = canvasOf(width, frame.bottom + 42);
  const low = Math.min(0.9, ...rows.map((row) => row.least)) * 0.97, high = Math.max(1.15, ...rows.map((row) => row.most)) * 1.03;
  const x = logarithmic([low, high], [frame.left, frame.right], 2);
  const ticks = [0.25, 0.5, 0.7, 0.8, 0.9, 1, 1.1, 1.25, 1.5, 2, 3, 4, 6, 8].filter((tick) => tick >= low && tick <= high);
  const kept = [];
  // Parity always has its label; the others give way where they would touch.
  for (const tick of [1, ...ticks.filter((value) => value !== 1)]) if (kept.every((other) => Math.abs(x(other) - x(tick)) > 32)) kept.push(tick);
  root.append(axisBelow(frame, x, kept, (tick) => `${tick}x`, "of cuBLAS's speed"));
  if (!narrow) {
    [["mean", 52], ["least", 104], ["most", 152], ["faster", 214]].forEach(([text, at]) => root.append(label(frame.right + at, frame.top - 10, text, { "text-anchor": "end", fill: "var(--soft)" })));
  }
  rows.forEach((row, index) => {
    const y = frame.top + index * line, middle = narrow ? y + 30 : y + line / 2, colour = row.mean >= 1 ? "var(--good)" : "var(--bad)";
    const words = `${row.suite}, ${row.kind}`, text = `${row.suite}, ${row.kind}: ${nameOf(row.kernel)}\ngeometric mean ${ratioText(row.mean)} of ${row.count}\nleast ${ratioText(row.least)}, most ${ratioText(row.most)}\nfaster than cuBLAS in ${row.faster} of ${row.count}`;
    const group = svg("g", {},
      svg("rect", { x: 0, y, width, height: line, fill: index % 2 ? "var(--stripe)" : "transparent" }),
      svg("line", { x1: x(row.least), x2: x(row.most), y1: middle, y2: middle, stroke: colour, "stroke-width": 6, "stroke-linecap": "round", opacity: 0.3 }),
      svg("circle", { cx: x(row.mean), cy: middle, r: 5.5, fill: colour }));
    if (narrow) {
      group.append(label(left - 4, y + 16, `${words}: ${nameOf(row.kernel)}`), label(width - 8, y + 16, ratioText(row.mean), { "text-anchor": "end", "font-weight": 600 }));
    } else {
      group.append(label(8, middle + 4, row.suite, { "font-weight": 600 }), label(112, middle + 4, row.kind, { fill: "var(--soft)" }), label(186, middle + 4, nameOf(row.kernel), { fill: "var(--soft)" }));
      [[ratioText(row.mean), 52, 600], [row.least.toFixed(2), 104], [row.most.toFixed(2), 152], [`${row.faster} of ${row.count}`, 214]].forEach(([value, at, weight]) => group.append(label(frame.right + at, middle + 4, value, { "text-anchor": "end", "font-weight": weight, fill: weight ? null : "var(--soft)" })));
    }
    root.append(withTip(group, text));
  });
  // Parity stands in front of the stripes and, on a phone, keeps out of the words.
  const spans = narrow ? rows.map((_, index) => [frame.top + index * line + 21, frame.top + index * line + 39]) : [[frame.top - 4, frame.bottom]];
  for (const [y1, y2] of spans) root.append(svg("line", { x1: x(1), x2: x(1), y1, y2, stroke: "var(--ref)", "stroke-width": 1.5 }));
  return { svg: root, columns: ["suite", "kind", "kernel", "products", "geometric mean", "least", "most", "faster"],
    rows: rows.map((row) => [row.suite, row.kind, nameOf(row.kernel), row.count, row.mean.toFixed(3), row.least.toFixed(3), row.most.toFixed(3), row.faster]) };
}
