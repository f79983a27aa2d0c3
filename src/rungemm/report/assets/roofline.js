// The roofline: every rung at the traffic that its tiles imply before any cache, every other shape at its compulsory traffic.
function rooflineFigure() {
  const points = [];
  for (const row of DATA.traffic) {
    points.push({ kind: "fp32", group: `rungs at ${row.m}x${row.n}x${row.k}`, name: nameOf(row.kernel), x: row.intensity, y: row.tflops, colour: "var(--c0)",
      text: `${nameOf(row.kernel)} at ${row.m}x${row.n}x${row.k}\n${number(row.tflops)} TFLOPS, ${number(row.intensity)} FLOP a byte asked of global memory\n${number(row.global_loads)} global and ${number(row.shared_loads)} shared loads for one element of C` });
  }
  for (const record of DATA.records) {
    if (record.suite === "ladder" && !["champion", "cublas", "library"].includes(record.kernel)) continue;
    if (!record.cold_l2 || !peakOf(record)) continue;
    const kind = record.dtype === "fp32" && record.precision !== "ieee" ? "tf32" : record.dtype;
    points.push({ kind, group: `suite ${record.suite}`, name: nameOf(record.kernel), x: compulsory(record), y: record.tflops, colour: colourOf(record.kernel), text: `${describe(record)}\n${number(compulsory(record))} FLOP a compulsory byte` });
  }
  if (!points.length) return null;
  const kinds = unique(points.map((point) => point.kind));
  const groups = unique(points.map((point) => point.group));
  return figure({
    id: "roofline", title: "Roofline",
    note: "Below the roof is what the card allows. Rungs stand at the bytes that their tiles ask of global memory: a point left of and above the slope lives on its caches. Other shapes stand at their compulsory traffic.",
    controls: [{ key: "kind", label: "type", options: kinds.map((kind) => [kind, kind]) },
      { key: "group", label: "points", options: [...groups.map((group) => [group, group]), ["all", "everything"]] }],
    draw: (state, width) => drawRoofline(points.filter((point) => point.kind === state.kind && (state.group === "all" || point.group === state.group)), state.kind, state.group.startsWith("rungs"), width),
  });
}

function compulsory(record) {
  const size = { fp32: 4, fp16: 2, bf16: 2, fp64: 8 }[record.dtype] ?? 1;
  const out = record.dtype.startsWith("fp8") ? 2 : record.dtype === "int8" ? 4 : size;
  const bytes = size * (record.m * record.k + record.k * record.n) + out * record.m * record.n;
  return (2 * record.m * record.n * record.k) / bytes;
}

function drawRoofline(points, kind, named, width) {
  if (!points.length) return null;
  const narrow = width < 560, frame = { left: 46, top: 30, right: width - (named && !narrow ? 150 : 14), bottom: narrow ? 300 : 400 };
  const root = canvasOf(width, frame.bottom + 42);
  const peak = DATA.card.peaks[kind], slope = DATA.card.dram_gbs / 1000, ridge = peak / slope;
  const xs = points.map((point) => point.x), ys = points.map((point) => point.y);
  const x = logarithmic([Math.min(...xs, ridge) / 2, Math.max(...xs, ridge) * 3], [frame.left, frame.right]);
  const y = logarithmic([Math.min(...ys) / 2, peak * 1.6], [frame.bottom, frame.top]);
  const x0 = Math.min(...xs, ridge) / 2, x1 = Math.max(...xs, ridge) * 3;
  const floor = Math.min(...ys) / 2, start = Math.max(x0, floor / slope);
  root.append(axisBelow(frame, x, x.ticks(), (tick) => number(tick), "FLOP a byte"));
  root.append(axisLeft(frame, y, y.ticks(), (tick) => number(tick), "TFLOPS"));
  root.append(svg("path", { d: `M${x(start)},${y(start * slope)}L${x(ridge)},${y(peak)}L${x(x1)},${y(peak)}`, fill: "none", stroke: "var(--bad)", "stroke-width": 2 }));
  root.append(label(x(x1) - 4, y(peak) - 6, `${number(peak)} TFLOPS`, { "text-anchor": "end", fill: "var(--bad)" }));
  root.append(label(x(start) + 8, y(start * slope) - (narrow ? 10 : 0), `${number(DATA.card.dram_gbs)} GB/s`, { fill: "var(--bad)" }));
  if (named && !narrow) {
    const near = (point) => points.filter((other) => Math.abs(x(other.x) - x(point.x)) < 120 && Math.abs(y(other.y) - y(point.y)) < 60).length > 1;
    const crowd = points.filter(near), side = frame.right + 14;
    const placed = spreadOut(crowd.map((point) => y(point.y)), 15, frame.top + 4, frame.bottom - 4);
    crowd.forEach((point, index) => root.append(
      svg("path", { d: `M${x(point.x) + 5},${y(point.y)}L${frame.right - 6},${placed[index]}H${side - 4}`, fill: "none", stroke: "var(--rule)" }),
      label(side, placed[index] + 4, point.name, { fill: "var(--soft)" })));
    for (const point of points) if (!crowd.includes(point)) root.append(label(x(point.x) + 10, y(point.y) + 4, point.name, { fill: "var(--soft)" }));
  }
  root.append(...points.map((point) => withTip(svg("circle", { cx: x(point.x), cy: y(point.y), r: 5, fill: point.colour, opacity: 0.85 }), point.text)));
  const legend = unique(points.map((point) => `${point.colour}|${named ? "rungs" : point.name}`)).map((pair) => pair.split("|"));
  return { svg: root, legend, columns: ["point", "FLOP a byte", "TFLOPS", "of the roof"],
    rows: points.map((point) => [point.text.split("\n")[0], number(point.x), number(point.y), percent(point.y / Math.min(peak, point.x * slope))]) };
}
