// Whether the method holds on this card: trials that must fail and do, and a second run's ratios over the first's.
function trustSection() {
  const { method, occupancy, repeat } = DATA.trust;
  if (!method && !occupancy && !repeat) return null;
  const claims = [];
  const claim = (good, text) => claims.push(el("li", { class: good ? "good" : "bad" }, text));
  if (method) {
    const identical = method.identical, slower = method.ten_percent_slower, off = Math.max(...method.self_ratios.map((ratio) => Math.abs(ratio - 1)));
    claim(off < 0.01, `cuBLAS timed against itself ${method.self_ratios.length} times: every ratio within ${percent(off, 2)} of 1.`);
    claim(slower.flagged === slower.of, `A kernel made 10% slower was flagged by compare in ${slower.flagged} of ${slower.of} trials.`);
    claim(identical.not_flagged === identical.of, `An identical one was left alone in ${identical.not_flagged} of ${identical.of}.`);
    claim(Boolean(method.warm_refused), `A benchmark with a warm L2 was ${method.warm_refused ? "refused" : "NOT refused"}: one operand set, reused at once.`);
    const wrong = Object.entries(method.failures).filter(([name]) => name !== "cublas");
    const caught = wrong.every(([, why]) => why), who = wrong.map(([name]) => `one that ${name}`).join(", ");
    claim(caught, caught ? `Wrong contenders FAILED, as they must: ${who}.` : `A wrong contender was NOT caught, of ${who}.`);
  }
  if (occupancy) claim(occupancy.same === occupancy.of, `Blocks on an SM by our occupancy calculator equal CUDA's own count for ${occupancy.same} of ${occupancy.of} compiled kernels.`);
  if (repeat) {
    const changes = repeat.pairs.map((pair) => Math.abs(pair.change - 1)), within = changes.filter((change) => change <= 0.02).length;
    claim(within === changes.length, `A second run agreed within 2% on ${within} of ${changes.length} ratios; the largest change is ${percent(Math.max(...changes), 1)}.`);
  }
  const note = `Tried on the card itself${method ? ` (${method.problem}, ${method.date.slice(0, 10)})` : ""}; docs/method.md says how.`;
  const list = el("ul", { class: "claims" }, ...claims);
  if (!repeat) return el("section", { id: "trust" }, el("h2", {}, "Does the method hold?"), el("p", { class: "soft" }, note), list);
  const section = figure({
    id: "trust", title: "Does the method hold?", note: `${note} The plot has every ratio of the second run over the same one of the first, sorted, with its 99% interval; the band is 2%.`,
    draw: (_, width) => drawRepeat(repeat.pairs, width),
  });
  section.querySelector("p").after(list);
  return section;
}

function drawRepeat(pairs, width) {
  const sorted = [...pairs].sort((a, b) => a.change - b.change), narrow = width < 560;
  const frame = { left: 50, top: 26, right: width - 12, bottom: narrow ? 240 : 280 };
  const root = canvasOf(width, frame.bottom + 34);
  const reach = Math.max(0.03, ...sorted.map((pair) => Math.max(Math.abs(pair.low - 1), Math.abs(pair.high - 1)))) * 1.08;
  const y = linear([-Math.min(reach, 0.2), Math.min(reach, 0.2)], [frame.bottom, frame.top]), x = linear([-0.5, sorted.length - 0.5], [frame.left + 6, frame.right - 6]);
  const clip = (value) => Math.max(frame.top, Math.min(frame.bottom, y(value - 1)));
  root.append(svg("rect", { x: frame.left, y: y(0.02), width: frame.right - frame.left, height: y(-0.02) - y(0.02), fill: "var(--good)", opacity: 0.12 }));
  root.append(axisLeft(frame, y, y.ticks(6), (tick) => `${tick > 0 ? "+" : ""}${number(100 * tick, 2)}%`, "second run's ratio over the first's"));
  root.append(label((frame.left + frame.right) / 2, frame.bottom + 22, `${sorted.length} ratios, sorted`, { "text-anchor": "middle", fill: "var(--soft)" }));
  sorted.forEach((pair, index) => {
    const colour = Math.abs(pair.change - 1) <= 0.02 ? "var(--c0)" : "var(--bad)";
    root.append(withTip(svg("g", {},
      svg("line", { x1: x(index), x2: x(index), y1: clip(pair.low), y2: clip(pair.high), stroke: colour, "stroke-width": 1.5, opacity: 0.5 }),
      svg("circle", { cx: x(index), cy: clip(pair.change), r: 3.5, fill: colour })), `${pair.what}\n${(100 * (pair.change - 1)).toFixed(2)}% [${(100 * (pair.low - 1)).toFixed(2)}%, ${(100 * (pair.high - 1)).toFixed(2)}%]`));
  });
  return { svg: root, columns: ["contender and product", "second over first", "low", "high"], rows: sorted.map((pair) => [pair.what, pair.change.toFixed(4), pair.low.toFixed(4), pair.high.toFixed(4)]) };
}
