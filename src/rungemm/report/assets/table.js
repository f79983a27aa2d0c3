// Every record of the summary, with filters: the table to copy from.
function tableSection() {
  if (!DATA.records.length) return null;
  const box = el("div", { class: "tablebox" });
  const state = { suite: "", kernel: "", kind: "" };
  const controls = el("div", { class: "controls" });
  const filters = [["suite", "suite", (record) => record.suite], ["kernel", "kernel", (record) => record.kernel], ["kind", "type", kindOf]];
  function fill() {
    const shown = DATA.records.filter((record) => filters.every(([key, , get]) => !state[key] || get(record) === state[key]));
    box.replaceChildren(copyable(["kernel", "suite", ...COLUMNS.slice(1), "commit", "date"],
      shown.map((record) => { const [first, ...rest] = rowOf(record); return [first, record.suite, ...rest, record.commit ?? "", record.date.slice(0, 10)]; })));
  }
  for (const [key, text, get] of filters) {
    const choose = el("select", { "aria-label": text, onchange: () => { state[key] = choose.value; fill(); } }, el("option", { value: "" }, "all"));
    for (const value of unique(DATA.records.map(get)).sort()) choose.append(el("option", { value }, value));
    controls.append(el("label", {}, text, choose));
  }
  fill();
  return el("section", { id: "table" }, el("h2", {}, "All results"), el("p", { class: "soft" }, "Every record of summary.json."), controls, box);
}
