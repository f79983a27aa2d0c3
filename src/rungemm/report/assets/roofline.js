// The roofline: every rung at the traffic that it asks for before any cache, every other shape at its compulsory traffic.
function rooflineFigure() {
  const points = [];
  for (const row of DATA.figures) {
    const kind = arithmeticOf(row), measured = measuredOf(row), asked = row.bounds.counted_intensity;
    if (!asked) continue;
    const text = [`${nameOf(row.kernel)} at ${shapeOf({ ...row, batch: 1 })} ${kindOf(row)}`, measured ? `${number(measured.tflops)} TFLOPS` : "not measured", `asks for ${number(row.counts.sector_bytes_per_c)} bytes for one element of C: ${number(asked)} FLOP a byte`, `with no cache that would allow ${number(row.bounds.uncached_tflops)} TFLOPS`].join("\n");
    points.push({ kind, place: rungOrder(row), group: `rungs at ${shapeOf({ ...row, batch: 1 })}`, name: nameOf(row.kernel), x: asked, y: measured?.tflops ?? row.bounds.uncached_tflops, hollow: !measured, colour: familyColour(row), text });
  }
  for (const record of [...DATA.records].sort(bySuite)) {
    if (record.suite === "ladder" && !["champion", "cublas", "library"].includes(record.kernel)) continue;
    if (!record.cold_l2 || !peakOf(record) || record.suite === "claims") continue;
    points.push({ kind: arithmeticOf(record), group: `suite ${record.suite}`, name: nameOf(record.kernel), x: compulsory(record), y: record.tflops, colour: colourOf(record.kernel), text: `${describe(record)}\n${number(compulsory(record))} FLOP a compulsory byte` });
  }
  if (!points.length) return null;
  const rank = (kind) => ["fp32", "tf32", "bf16", "fp16"].indexOf(kind) >>> 0;
  const kinds = unique(points.map((point) => point.kind)).sort((a, b) => rank(a) - rank(b));
  const groupsOf = (kind) => unique(points.filter((point) => point.kind === kind).map((point) => point.group));
  return figure({
    id: "roofline", title: "Roofline",
    note: "Below the roof is what the card allows. Rungs stand at the bytes that they ask of global memory, sectors and TMA copies as the simulator counts them: a point above the slope lives on its caches. A hollow point has not been measured and stands at what its traffic would allow with no cache. Suites stand at their compulsory traffic.",
    controls: [{ key: "kind", label: "type", options: kinds.map((kind) => [kind, kind]) },
      { key: "group", label: "points", options: (state) => [...groupsOf(state.kind).map((group) => [group, group]), ["all", "everything"]] }],
    draw: (state, width) => drawRoofline(points.filter((point) => point.kind === state.kind && (state.group === "all" || point.group === state.group)), state.kind, state.group.startsWith("rungs"), width),
  });
}

function arithmeticOf(record) {
  return record.dtype === "fp32" && record.precision !== "ieee" ? "tf32" : record.dtype;
}
// A rung's measurement at the problem that its figures are of.
function measuredOf(row) {
  return DATA.records.find((record) => record.suite === "ladder" && record.cold_l2 && ["kernel", "dtype", "precision", "m", "n", "k"].every((key) => record[key] === row[key]));
}

function compulsory(record) {
  const size = { fp32: 4, fp16: 2, bf16: 2, fp64: 8 }[record.dtype] ?? 1;
  const out = record.dtype.startsWith("fp8") ? 2 : record.dtype === "int8" ? 4 : size;
  const bytes = size * (record.m * record.k + record.k * record.n) + out * record.m * record.n;
  return (2 * record.m * record.n * record.k) / bytes;
}

function drawRoofline(points, kind, named, width) {
  if (!points.length) return null;
  const narrow = width < 560, frame = { left: 46, top: 30, right: width - (named && !narrow ? 170 : 14), bottom: narrow ? 320 : 440 };
  const root = canvasOf(width, frame.bottom + 42);
  const peak = DATA.card.peaks[kind], slope = DATA.card.dram_gbs / 1000, ridge = peak / slope;
  const xs = points.map((point) => point.x), ys = points.map((point) => point.y);
  const x0 = Math.min(...xs, ridge) / 1.8, x1 = Math.max(...xs, ridge) * 2.2, floor = Math.min(...ys) / 2;
  const x = logarithmic([x0, x1], [frame.left, frame.right]), y = logarithmic([floor, peak * 1.5], [frame.bottom, frame.top]);
  const start = Math.max(x0, floor / slope);
  root.append(axisBelow(frame, x, x.ticks(), (tick) => number(tick), "FLOP a byte"));
  root.append(axisLeft(frame, y, y.ticks(), (tick) => number(tick), "TFLOPS"));
  root.append(svg("path", { d: `M${x(start)},${y(start * slope)}L${x(ridge)},${y(peak)}L${x(x1)},${y(peak)}L${x(x1)},${frame.bottom}L${x(start)},${frame.bottom}Z`, fill: "var(--bad)", opacity: 0.05 }));
  root.append(svg("path", { d: `M${x(start)},${y(start * slope)}L${x(ridge)},${y(peak)}L${x(x1)},${y(peak)}`, fill: "none", stroke: "var(--bad)", "stroke-width": 2 }));
  root.append(label(x(x1) - 4, y(peak) - 6, `${number(peak)} TFLOPS`, { "text-anchor": "end", fill: "var(--bad)" }));
  // The rate is written along the slope, above it.
  const at = Math.sqrt(start * ridge), angle = (Math.atan2(y(ridge * slope) - y(start * slope), x(ridge) - x(start)) * 180) / Math.PI;
  root.append(label(x(at), y(at * slope) - 8, `${number(DATA.card.dram_gbs / 1000)} TB/s of DRAM`, { fill: "var(--bad)", "text-anchor": "middle", transform: `rotate(${angle.toFixed(1)} ${x(at).toFixed(1)} ${(y(at * slope) - 8).toFixed(1)})` }));
  if (named && !narrow) {
    // A point by itself has its name beside it; those in a crowd have theirs at the side, joined by a line.
    const side = frame.right + 14, near = (p, q) => Math.abs(y(p.y) - y(q.y)) < 16 && Math.abs(x(p.x) - x(q.x)) < 130;
    const crowded = (point) => x(point.x) > frame.right - 130 || points.some((other) => other !== point && near(point, other));
    const order = points.filter(crowded).sort((a, b) => y(a.y) - y(b.y) || b.x - a.x);
    const placed = spreadOut(order.map((point) => y(point.y)), 15, frame.top + 4, frame.bottom - 4);
    order.forEach((point, index) => root.append(
      svg("path", { d: `M${x(point.x) + 6},${y(point.y)}L${frame.right - 4},${placed[index]}H${side - 4}`, fill: "none", stroke: "var(--rule)" }),
      label(side, placed[index] + 4, point.name, { fill: point.hollow ? "var(--soft)" : null })));
    for (const point of points) if (!crowded(point)) root.append(label(x(point.x) + 11, y(point.y) + 4, point.name, { fill: point.hollow ? "var(--soft)" : null }));
  }
  // On a phone there is no room for names: a rung's place on the ladder stands in its point, and its name in the legend.
  const numbered = named && narrow;
  root.append(...points.map((point) => withTip(svg("g", {},
    svg("circle", { cx: x(point.x), cy: y(point.y), r: numbered ? 9 : named ? 5.5 : 4, fill: point.hollow ? "var(--panel)" : point.colour, stroke: point.hollow ? point.colour : "var(--panel)", "stroke-width": point.hollow ? 2 : 1, opacity: named ? 1 : 0.8 }),
    numbered ? label(x(point.x), y(point.y) + 4, point.place, { "text-anchor": "middle", "font-weight": 600, fill: point.hollow ? "var(--ink)" : "var(--panel)" }) : null), point.text)));
  let legend;
  if (numbered) legend = [...points].sort((a, b) => a.place - b.place).map((point) => [point.colour, `${point.place} ${point.name}`]);
  else if (named) legend = unique(DATA.figures.filter((row) => arithmeticOf(row) === kind).map((row) => rungOf(row)?.family).filter(Boolean)).map((family) => [FAMILIES[family][1], FAMILIES[family][0]]);
  else legend = unique(points.map((point) => `${point.colour}|${point.name}`)).map((pair) => pair.split("|"));
  return { svg: root, legend, columns: ["point", "FLOP a byte", "TFLOPS", "of the roof"],
    rows: points.map((point) => [point.text.split("\n")[0], number(point.x), point.hollow ? "" : number(point.y), point.hollow ? "" : percent(point.y / Math.min(peak, point.x * slope))]) };
}
