// TFLOPS over the size of a square product.
function sizeFigure() {
  const records = DATA.records.filter((record) => record.batch === 1 && record.m === record.n && record.n === record.k && record.cold_l2 && record.suite === "squares");
  if (unique(records.map((record) => record.m)).length < 2) return null;
  const kinds = unique(records.map(kindOf)).sort((a, b) => Number(b.startsWith("fp32")) - Number(a.startsWith("fp32")) || a.localeCompare(b));
  return figure({
    id: "size", title: "Speed over size",
    note: "Square products, M = N = K. The band around each line is the tenth to ninetieth percentile of its rounds.",
    controls: [{ key: "kind", label: "type", options: kinds.map((kind) => [kind, kind]) },
      { key: "what", label: "show", options: [["tflops", "TFLOPS"], ["ratio", "ratio to cuBLAS"]] }],
    draw: (state, width) => drawSize(records.filter((record) => kindOf(record) === state.kind), state.what, width),
  });
}

function drawSize(records, what, width) {
  if (!records.length) return null;
  const narrow = width < 560;
  const frame = { left: 46, top: 30, right: width - (narrow ? 12 : 130), bottom: narrow ? 280 : 360 };
  const root = canvasOf(width, frame.bottom + 42);
  const sizes = unique(records.map((record) => record.m)).sort((a, b) => a - b);
  const x = logarithmic([sizes[0] * 0.9, sizes.at(-1) * 1.1], [frame.left, frame.right], 2);
  const value = (record) => (what === "ratio" ? record.ratio : record.tflops);
  const shown = records.filter((record) => value(record) !== null && (what !== "ratio" || record.kernel !== "cublas"));
  if (!shown.length) return null;
  const peak = what === "tflops" ? peakOf(records[0]) : null;
  const top = Math.max(...shown.map(value), peak ?? 0);
  const y = linear([0, top * 1.05], [frame.bottom, frame.top]);
  root.append(axisBelow(frame, x, x.ticks().filter((_, index) => !narrow || index % 2 === 1), (tick) => String(tick), "M = N = K"));
  root.append(axisLeft(frame, y, y.ticks(6), (tick) => number(tick), what === "ratio" ? "ratio to cuBLAS (above 1: faster)" : "TFLOPS"));
  const level = what === "ratio" ? 1 : peak;
  if (level) {
    root.append(svg("line", { x1: frame.left, x2: frame.right, y1: y(level), y2: y(level), stroke: what === "ratio" ? "var(--ref)" : "var(--bad)", "stroke-width": 1.5, "stroke-dasharray": "4 3" }));
    if (peak) root.append(label(frame.left + 6, y(level) + 14, `dense peak ${number(peak)}`, { fill: "var(--bad)" }));
  }
  const groups = [...by(shown, (record) => record.kernel)].sort((a, b) => rungOrder(a[1][0]) - rungOrder(b[1][0]));
  const ends = [];
  for (const [kernel, items] of groups) {
    const points = items.sort((a, b) => a.m - b.m), colour = colourOf(kernel);
    const path = points.map((record, index) => `${index ? "L" : "M"}${x(record.m).toFixed(1)},${y(value(record)).toFixed(1)}`).join("");
    if (what === "tflops") {
      const edge = (field) => points.map((record) => [x(record.m), y(record.tflops * record.us / record[field])]);
      const ring = [...edge("us_low"), ...edge("us_high").reverse()].map(([px, py]) => `${px.toFixed(1)},${py.toFixed(1)}`).join(" ");
      root.append(svg("polygon", { points: ring, fill: colour, opacity: 0.18 }));
    }
    root.append(svg("path", { d: path, fill: "none", stroke: colour, "stroke-width": 2 }));
    for (const record of points) {
      root.append(withTip(svg("circle", { cx: x(record.m), cy: y(value(record)), r: 4, fill: colour }), describe(record)));
    }
    ends.push([nameOf(kernel), y(value(points.at(-1))), colour]);
  }
  if (!narrow) {
    const placed = spreadOut(ends.map((end) => end[1]), 15, frame.top, frame.bottom);
    ends.forEach(([text, , colour], index) => root.append(label(frame.right + 8, placed[index] + 4, text, { fill: colour })));
  }
  const legend = narrow ? ends.map(([text, , colour]) => [colour, text]) : [];
  return { svg: root, legend, columns: COLUMNS, rows: shown.map(rowOf) };
}
