// What each rung takes of an SM, and the loads that its tiles imply.
function chipFigure() {
  const records = [...by(DATA.records.filter((record) => record.occupancy && record.suite === "ladder"), (record) => record.kernel).values()].map((items) => items[0]);
  if (!records.length) return null;
  return figure({
    id: "chip", title: "Occupancy and traffic",
    note: "Warps resident on an SM, of those it could hold, and what holds them back; registers and shared memory as compiled. Loads are counted on paper from the tile sizes, and divided by K.",
    controls: [{ key: "what", label: "show", options: [["warps", "warps on an SM"], ["registers", "registers a thread"], ["shared", "shared memory a block"], ["global", "global loads for one element of C"], ["fromshared", "shared loads for one element of C"]] }],
    draw: (state, width) => drawChip(records, state.what, width),
  });
}

function drawChip(records, what, width) {
  const traffic = (record) => DATA.traffic.find((row) => row.kernel === record.kernel && row.m === record.m && row.n === record.n && row.k === record.k);
  const value = {
    warps: (record) => record.occupancy.warps,
    registers: (record) => record.resources.registers,
    shared: (record) => record.resources.shared_bytes / 1024,
    global: (record) => traffic(record)?.global_loads / record.k,
    fromshared: (record) => traffic(record)?.shared_loads / record.k,
  }[what];
  const unit = { warps: "warps", registers: "registers", shared: "KiB", global: "loads / K", fromshared: "loads / K" }[what];
  const rows = records.filter((record) => Number.isFinite(value(record))).sort((a, b) => rungOrder(a) - rungOrder(b));
  if (!rows.length) return null;
  const narrow = width < 560, line = narrow ? 38 : 24, left = narrow ? 6 : 170;
  const frame = { left, top: 12, right: width - (narrow ? 12 : 190), bottom: 12 + rows.length * line };
  const root = canvasOf(width, frame.bottom + 42), limit = { warps: rows[0].occupancy.max_warps, registers: 255 }[what];
  const x = linear([0, (limit ?? Math.max(...rows.map(value))) * 1.02], [frame.left, frame.right]);
  root.append(axisBelow(frame, x, x.ticks(narrow ? 4 : 6), (tick) => number(tick), unit));
  rows.forEach((record, index) => {
    const y = frame.top + index * line, o = record.occupancy, r = record.resources;
    const text = `${nameOf(record.kernel)}\n${r.registers} registers, ${r.spill_bytes} B spilled, ${number(r.shared_bytes / 1024)} KiB shared\n${o.blocks} blocks, ${o.warps} of ${o.max_warps} warps, held by ${o.limiter}`;
    const words = `${number(value(record))}${what === "warps" ? `, held by ${o.limiter}` : ""}`;
    root.append(withTip(svg("g", {},
      svg("rect", { x: 0, y, width, height: line, fill: "transparent" }),
      svg("rect", { x: frame.left, y: narrow ? y + 19 : y + 4, width: Math.max(1, x(value(record)) - frame.left), height: narrow ? 13 : line - 8, rx: 2, fill: "var(--c5)" }),
      narrow ? label(left, y + 14, nameOf(record.kernel)) : label(left - 8, y + 17, nameOf(record.kernel), { "text-anchor": "end" }),
      narrow ? label(width - 8, y + 14, words, { "text-anchor": "end", fill: "var(--soft)" }) : label(x(value(record)) + 8, y + 17, words, { fill: "var(--soft)" })), text));
  });
  return { svg: root, columns: ["rung", "registers", "spilled B", "shared B", "blocks an SM", "warps", "of", "held by", "global loads / C", "shared loads / C"],
    rows: rows.map((record) => [nameOf(record.kernel), record.resources.registers, record.resources.spill_bytes, record.resources.shared_bytes, record.occupancy.blocks, record.occupancy.warps, record.occupancy.max_warps, record.occupancy.limiter, number(traffic(record)?.global_loads), number(traffic(record)?.shared_loads)]) };
}
