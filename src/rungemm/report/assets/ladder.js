// The ladder as bars: TFLOPS of every rung at one shape, with lines for cuBLAS and the dense peak.
function ladderFigure() {
  const records = DATA.records.filter((record) => record.suite === "ladder" && record.cold_l2);
  if (!records.length) return null;
  const keyOf = (record) => `${kindOf(record)} at ${shapeOf(record)}`;
  const keys = unique(records.map(keyOf)).sort((a, b) => Number(b.startsWith("fp32")) - Number(a.startsWith("fp32")) || a.localeCompare(b, "en", { numeric: true }));
  return figure({
    id: "ladder", title: "The ladder",
    note: "Each rung changes one thing. Bars are TFLOPS; the lines are cuBLAS in the same rounds and the card's dense peak. The last column is the speed over that of the rung below. Point at a rung for its idea.",
    controls: [{ key: "at", label: "shape", options: keys.map((key) => [key, key]) }],
    draw: (state, width) => drawLadder(records.filter((record) => keyOf(record) === state.at), width),
  });
}

// A rung from another run than most: its ratio is against cuBLAS there, not against the line that is drawn.
function rungName(record) {
  return nameOf(record.kernel) + (record.apart !== undefined ? " *" : "");
}
function rungOf(record) {
  return DATA.rungs.find((item) => item.name === record.kernel);
}
function rungOrder(record) {
  return rungOf(record)?.position ?? { champion: 1000, library: 1001, cublas: 2000 }[record.kernel] ?? 900;
}
const FAMILIES = { cuda_core: ["CUDA cores", "var(--c0)"], tensor_core: ["tensor cores, mma.sync", "var(--c3)"], hopper: ["Hopper: TMA and wgmma", "var(--c5)"] };
function familyColour(record) {
  return record.kernel === "cublas" ? "var(--ref)" : FAMILIES[rungOf(record)?.family]?.[1] ?? "var(--c0)";
}

function drawLadder(records, width) {
  const rows = [...records].sort((a, b) => rungOrder(a) - rungOrder(b) || a.kernel.localeCompare(b.kernel));
  const narrow = width < 560, line = narrow ? 42 : 26, left = narrow ? 6 : 172, right = narrow ? 12 : 262;
  const frame = { left, top: 30, right: width - right, bottom: 30 + rows.length * line };
  const root = canvasOf(width, frame.bottom + 40);
  const peak = peakOf(rows[0]), base = rows.find((record) => record.kernel === "cublas");
  const x = linear([0, Math.max(peak ?? 0, ...rows.map((record) => record.tflops)) * 1.02], [frame.left, frame.right]);
  root.append(axisBelow(frame, x, x.ticks(narrow ? 4 : 6), (tick) => number(tick), "TFLOPS"));
  const columns = [[56, "TFLOPS"], [130, "of cuBLAS"], [190, "of peak"], [256, "on below"]];
  if (!narrow) for (const [at, text] of columns) root.append(label(frame.right + at, frame.top - 9, text, { "text-anchor": "end", fill: "var(--soft)" }));
  rows.forEach((record, index) => {
    const y = frame.top + index * line, rung = rungOf(record), colour = familyColour(record);
    const height = narrow ? 14 : line - 8, top = narrow ? y + 21 : y + 4;
    const below = rung?.below ? rows.find((other) => other.kernel === rung.below) : null;
    const step = below ? `×${(record.tflops / below.tflops).toFixed(2)}` : "";
    const share = base && record !== base && record.ratio !== null ? percent(record.ratio) : "";
    const text = describe(record) + (below ? `\n${number(record.tflops / below.tflops)} times ${nameOf(below.kernel)}` : "") + (rung ? `\n${rung.idea}` : "");
    const group = svg("g", {},
      svg("rect", { x: 0, y, width, height: line, fill: "transparent" }),
      svg("rect", { x: frame.left, y: top, width: Math.max(1, x(record.tflops) - frame.left), height, rx: 2, fill: colour }));
    const strong = record.kernel.startsWith("champion") ? 600 : null;
    if (narrow) {
      group.append(label(frame.left, y + 15, rungName(record), { "font-weight": strong }),
        label(width - 8, y + 15, `${figures(record.tflops)}${share ? `, ${share} of cuBLAS` : ""}${step ? `, ${step}` : ""}`, { "text-anchor": "end", fill: "var(--soft)" }));
    } else {
      group.append(label(left - 8, y + 18, rungName(record), { "text-anchor": "end", "font-weight": strong }));
      [figures(record.tflops), share, percent(record.peak_share), step].forEach((value, column) => group.append(label(frame.right + columns[column][0], y + 18, value, { "text-anchor": "end", fill: column ? "var(--soft)" : null, "font-weight": column ? null : 600 })));
    }
    root.append(withTip(group, text));
  });
  const lines = [[peak, "peak", "var(--bad)"], [base?.tflops, "cuBLAS", "var(--ref)"]];
  for (const [value, text, colour] of lines) {
    if (!value) continue;
    // On a phone the words stand over the bars: the line then keeps to the bars.
    const bars = narrow ? rows.map((_, index) => [frame.top + index * line + 20, frame.top + (index + 1) * line - 5]) : [[frame.top - 4, frame.bottom]];
    for (const [y1, y2] of bars) root.append(svg("line", { x1: x(value), x2: x(value), y1, y2, stroke: colour, "stroke-width": 1.5, "stroke-dasharray": narrow ? null : "4 3" }));
    root.append(label(x(value), frame.top - 9, `${text} ${number(value)}`, { "text-anchor": "end", fill: colour }));
  }
  const families = unique(rows.map((record) => rungOf(record)?.family).filter(Boolean));
  const legend = families.length > 1 ? families.map((family) => [FAMILIES[family][1], FAMILIES[family][0]]) : [];
  const failed = Object.entries(DATA.samples[rows[0].samples].failed).map(([name, why]) => ["var(--bad)", `${nameOf(name)} FAILED: ${why}`]);
  const apart = rows.filter((record) => record.apart !== undefined).map((record) => ["var(--soft)", `* ${nameOf(record.kernel)}: measured in another run${record.apart === null ? "" : `, against cuBLAS at ${figures(record.apart)} there`}`]);
  return { svg: root, legend: [...legend, ...apart, ...failed], columns: COLUMNS, rows: rows.map(rowOf) };
}
