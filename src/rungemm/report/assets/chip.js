// What each rung takes of an SM, and what it asks of memory.
const CHIP = {
  warps: ["warps on an SM", "warps", (row) => row.resources?.warps_per_sm],
  registers: ["registers a thread", "registers", (row) => row.resources?.registers],
  shared: ["shared memory a block", "KiB", (row) => (row.resources ? row.resources.shared_bytes / 1024 : undefined)],
  waves: ["block slots at work", "% of slots", (row) => (row.resources ? 100 * row.resources.wave_efficiency : undefined)],
  bytes: ["bytes asked of global memory", "bytes for one element of C", (row) => row.counts?.sector_bytes_per_c],
  loads: ["global loads by threads", "loads for one element of C", (row) => row.counts?.loads_per_c],
  shared_loads: ["shared loads by threads", "loads for one element of C", (row) => row.counts?.shared_loads_per_c],
  wavefronts: ["shared-memory wavefronts", "wavefronts for one element of C", (row) => row.counts?.wavefronts_per_c],
  conflicts: ["bank conflicts", "conflicts for one element of C", (row) => row.counts?.conflicts_per_c],
};

function chipFigure() {
  if (!DATA.figures.length) return null;
  const old = unique(DATA.figures.filter((row) => !row.current).map((row) => nameOf(row.kernel)));
  const shared = unique(DATA.figures.filter((row) => !row.counts).map((row) => nameOf(row.kernel)));
  const warning = (shared.length ? ` Traffic is not counted for ${shared.join(", ")}: one tile says nothing of a grid whose programs share tiles.` : "") +
    (old.length ? ` Changed since they were counted (rungemm report --count): ${old.join(", ")}.` : "");
  const kinds = unique(DATA.figures.map((row) => arithmeticOf(row)));
  return figure({
    id: "chip", title: "Occupancy and traffic",
    note: "What each rung takes of an SM, as compiled for this card, and what it asks of memory for one element of C, as the simulator counts it on one tile. Warps come with the resource that holds them back." + warning,
    controls: [{ key: "kind", label: "type", options: kinds.map((kind) => [kind, kind]) },
      { key: "what", label: "show", options: Object.entries(CHIP).map(([key, [title]]) => [key, title]) }],
    draw: (state, width) => drawChip(DATA.figures.filter((row) => arithmeticOf(row) === state.kind), state.what, width),
  });
}

function drawChip(figures, what, width) {
  const [, unit, value] = CHIP[what];
  const rows = figures.filter((row) => Number.isFinite(value(row))).sort((a, b) => rungOrder(a) - rungOrder(b));
  if (!rows.length) return null;
  const narrow = width < 560, line = narrow ? 38 : 24, left = narrow ? 6 : 172;
  const frame = { left, top: 12, right: width - (narrow ? 12 : 190), bottom: 12 + rows.length * line };
  const root = canvasOf(width, frame.bottom + 42), limit = { warps: rows[0].resources?.max_warps_per_sm, registers: 255, waves: 100 }[what];
  const values = rows.map(value), most = Math.max(...values), positive = values.filter((item) => item > 0);
  // Naive asks for a thousand times what the last rung does: then only powers of ten show the others.
  const wide = !limit && positive.length > 0 && most / Math.min(...positive) > 40;
  const least = wide ? Math.min(...positive) / 2 : 0;
  const x = wide ? logarithmic([least, most * 1.3], [frame.left, frame.right]) : linear([0, (limit ?? (most || 1)) * 1.02], [frame.left, frame.right]);
  root.append(axisBelow(frame, x, wide ? x.ticks() : x.ticks(narrow ? 4 : 6), (tick) => number(tick), unit + (wide ? ", by powers of ten" : "")));
  rows.forEach((row, index) => {
    const y = frame.top + index * line, r = row.resources, c = row.counts, here = value(row);
    const text = [`${nameOf(row.kernel)}  ${kindOf(row)}`, r && `${r.registers} registers, ${r.spill_bytes} B spilled, ${number(r.shared_bytes / 1024)} KiB shared, ${r.threads} threads`, r && `${r.blocks_per_sm} blocks, ${r.warps_per_sm} of ${r.max_warps_per_sm} warps, held by ${r.limiter}`, r && `${r.programs} blocks in ${r.waves} waves, ${percent(r.wave_efficiency)} of the slots at work`, c && `${number(c.sector_bytes_per_c)} bytes, ${number(c.loads_per_c)} global and ${number(c.shared_loads_per_c)} shared loads, ${number(c.wavefronts_per_c)} wavefronts for one element of C`].filter(Boolean).join("\n");
    const words = `${number(here)}${what === "warps" ? `, held by ${r.limiter}` : ""}`;
    const end = here > 0 ? Math.max(frame.left + 1, x(Math.max(here, least))) : frame.left;
    root.append(withTip(svg("g", {},
      svg("rect", { x: 0, y, width, height: line, fill: "transparent" }),
      svg("rect", { x: frame.left, y: narrow ? y + 19 : y + 4, width: end - frame.left, height: narrow ? 13 : line - 8, rx: 2, fill: familyColour(row) }),
      narrow ? label(left, y + 14, nameOf(row.kernel)) : label(left - 8, y + 17, nameOf(row.kernel), { "text-anchor": "end" }),
      narrow ? label(width - 8, y + 14, words, { "text-anchor": "end", fill: "var(--soft)" }) : label(end + 8, y + 17, words, { fill: "var(--soft)" })), text));
  });
  const families = unique(rows.map((row) => rungOf(row)?.family).filter(Boolean));
  return { svg: root, legend: families.length > 1 ? families.map((family) => [FAMILIES[family][1], FAMILIES[family][0]]) : [],
    columns: ["rung", "registers", "spilled B", "shared B", "blocks an SM", "warps", "of", "held by", "slots at work", "bytes / C", "global loads / C", "shared loads / C", "wavefronts / C", "conflicts / C"],
    rows: rows.map(({ kernel, resources: r, counts: c }) => [nameOf(kernel), r?.registers, r?.spill_bytes, r?.shared_bytes, r?.blocks_per_sm, r?.warps_per_sm, r?.max_warps_per_sm, r?.limiter, percent(r?.wave_efficiency), number(c?.sector_bytes_per_c), number(c?.loads_per_c), number(c?.shared_loads_per_c), number(c?.wavefronts_per_c), number(c?.conflicts_per_c)].map((cell) => cell ?? "")) };
}
