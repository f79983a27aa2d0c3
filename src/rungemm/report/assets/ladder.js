// The ladder as bars: TFLOPS of every rung at one shape, with lines for cuBLAS and the dense peak.
function ladderFigure() {
  const records = DATA.records.filter((record) => record.suite === "ladder" && record.cold_l2);
  if (!records.length) return null;
  const keyOf = (record) => `${kindOf(record)} at ${shapeOf(record)}`;
  const keys = unique(records.map(keyOf)).sort((a, b) => Number(b.startsWith("fp32")) - Number(a.startsWith("fp32")) || a.localeCompare(b, "en", { numeric: true }));
  return figure({
    id: "ladder", title: "The ladder",
    note: "Each rung changes one thing. Bars are TFLOPS; the lines are cuBLAS in the same rounds and the card's dense peak.",
    controls: [{ key: "at", label: "shape", options: keys.map((key) => [key, key]) }],
    draw: (state, width) => drawLadder(records.filter((record) => keyOf(record) === state.at), width),
  });
}

function rungOrder(record) {
  const rung = DATA.rungs.find((item) => item.name === record.kernel);
  if (rung) return rung.position;
  return { champion: 1000, library: 1001, cublas: 2000 }[record.kernel] ?? 900;
}

function drawLadder(records, width) {
  const rows = [...records].sort((a, b) => rungOrder(a) - rungOrder(b) || a.kernel.localeCompare(b.kernel));
  const narrow = width < 560, line = narrow ? 40 : 26, left = narrow ? 6 : 170, right = narrow ? 12 : 230;
  const frame = { left, top: 26, right: width - right, bottom: 26 + rows.length * line };
  const root = canvasOf(width, frame.bottom + 40);
  const peak = peakOf(rows[0]), base = rows.find((record) => record.kernel === "cublas");
  const x = linear([0, Math.max(peak ?? 0, ...rows.map((record) => record.tflops)) * 1.02], [frame.left, frame.right]);
  root.append(axisBelow(frame, x, x.ticks(narrow ? 4 : 6), (tick) => number(tick), "TFLOPS"));
  rows.forEach((record, index) => {
    const y = frame.top + index * line, rung = DATA.rungs.find((item) => item.name === record.kernel);
    const height = narrow ? 14 : line - 8, top = narrow ? y + 20 : y + 4;
    const share = base && record !== base && record.ratio !== null ? `${percent(record.ratio)} of cuBLAS, ` : "";
    const words = `${number(record.tflops)}: ${share}${percent(record.peak_share)} of peak`;
    const text = describe(record) + (rung ? `\n${rung.idea}` : "");
    root.append(withTip(svg("g", {},
      svg("rect", { x: 0, y, width, height: line, fill: "transparent" }),
      svg("rect", { x: frame.left, y: top, width: Math.max(1, x(record.tflops) - frame.left), height, rx: 2, fill: record === base ? "var(--ref)" : "var(--c0)" }),
      narrow ? label(frame.left, y + 14, nameOf(record.kernel)) : label(left - 8, y + 18, nameOf(record.kernel), { "text-anchor": "end" }),
      narrow ? label(width - 8, y + 14, words, { "text-anchor": "end", fill: "var(--soft)" })
        : label(frame.right + 10, y + 18, words, { fill: "var(--soft)" })), text));
  });
  const lines = [[peak, "peak", "var(--bad)"], [base?.tflops, "cuBLAS", "var(--ref)"]];
  for (const [value, text, colour] of lines) {
    if (!value) continue;
    // On a phone the words stand over the bars: the line then keeps to the bars.
    const bars = narrow ? rows.map((_, index) => [frame.top + index * line + 19, frame.top + (index + 1) * line - 4]) : [[frame.top - 4, frame.bottom]];
    for (const [y1, y2] of bars) root.append(svg("line", { x1: x(value), x2: x(value), y1, y2, stroke: colour, "stroke-width": 1.5, "stroke-dasharray": narrow ? null : "4 3" }));
    root.append(label(x(value), frame.top - 9, `${text} ${number(value)}`, { "text-anchor": "end", fill: colour }));
  }
  const failed = Object.entries(DATA.samples[rows[0].samples].failed).map(([name, why]) => ["var(--bad)", `${nameOf(name)} FAILED: ${why}`]);
  return { svg: root, legend: failed, columns: COLUMNS, rows: rows.map(rowOf) };
}
