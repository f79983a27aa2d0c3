// A figure: title, note, selects, a plot that follows the width, its numbers as a table, and export as SVG or PNG.
const redraws = [];

// spec: {id, title, note, controls: [{key, label, options: [[value, text]]}], draw(state, width) -> drawing or null}
// A control's options may be a function of the state: of what the controls before it say.
// drawing: {svg, legend: [[colour, text]], columns, rows}
function figure(spec) {
  const state = {};
  const plot = el("div", { class: "plot" });
  const legend = el("div", { class: "legend" });
  const box = el("div", { class: "tablebox" });
  const details = el("details", {}, el("summary", {}, "numbers"), box);
  const controls = el("div", { class: "controls" });
  const pickers = (spec.controls ?? []).map((control) => {
    const choose = el("select", { "aria-label": control.label, onchange: () => { state[control.key] = choose.value; offer(); redraw(); } });
    const only = el("span", { class: "soft" }), field = el("label", {}, control.label, choose);
    controls.append(field, only);
    return { control, choose, field, only };
  });
  // Fill each select with what the ones before it leave open; one that leaves no choice is words.
  function offer() {
    for (const { control, choose, field, only } of pickers) {
      const options = typeof control.options === "function" ? control.options(state) : control.options;
      if (!options.some(([value]) => value === state[control.key])) state[control.key] = options[0][0];
      choose.replaceChildren(...options.map(([value, text]) => el("option", { value, selected: value === state[control.key] }, text)));
      field.hidden = options.length < 2;
      only.hidden = !field.hidden;
      only.textContent = `${control.label}: ${options[0][1]}`;
    }
  }
  offer();
  controls.append(
    el("span", { class: "export" },
      el("button", { type: "button", onclick: () => saveSvg(plot, spec.id) }, "SVG"),
      el("button", { type: "button", onclick: () => savePng(plot, spec.id) }, "PNG")),
  );
  const section = el("section", { id: spec.id }, el("h2", {}, spec.title), el("p", { class: "soft" }, spec.note), controls, plot, legend, details);
  function redraw() {
    const width = Math.max(280, Math.floor(plot.clientWidth));
    const drawing = spec.draw(state, width);
    plot.replaceChildren();
    legend.replaceChildren();
    if (!drawing) {
      plot.append(el("p", { class: "soft" }, "Nothing measured for this choice."));
      box.replaceChildren();
      return;
    }
    drawing.svg.setAttribute("role", "img");
    drawing.svg.setAttribute("aria-label", spec.title);
    plot.append(drawing.svg);
    for (const [colour, text] of drawing.legend ?? []) {
      legend.append(el("span", {}, el("span", { class: "swatch", style: `background:${colour}` }), text));
    }
    box.replaceChildren(copyable(drawing.columns, drawing.rows));
  }
  redraws.push(redraw);
  return section;
}

function canvasOf(width, height) {
  return svg("svg", { width, height, viewBox: `0 0 ${width} ${height}` });
}

// A table to sort by a click on a column's head, and to copy as it stands.
function copyable(columns, rows) {
  let shown = [...rows], sorted = null, falling = false;
  const body = el("tbody", {});
  const fill = () => body.replaceChildren(...shown.map((row) => el("tr", {}, ...row.map((cell, index) => el("td", index ? {} : { title: String(cell) }, String(cell))))));
  const heads = columns.map((column, index) => el("th", { scope: "col" }, el("button", { type: "button", class: "sort", onclick: () => sortBy(index) }, column)));
  function sortBy(index) {
    falling = sorted === index ? !falling : false;
    sorted = index;
    const key = (row) => { const text = String(row[index]).replace(/[,%x]$|,/g, ""); return text !== "" && Number.isFinite(Number(text)) ? Number(text) : null; };
    shown = [...rows].sort((a, b) => {
      const [p, q] = [key(a), key(b)];
      const order = p !== null && q !== null ? p - q : String(a[index]).localeCompare(String(b[index]), "en", { numeric: true });
      return falling ? -order : order;
    });
    heads.forEach((head, other) => { if (other === index) head.setAttribute("aria-sort", falling ? "descending" : "ascending"); else head.removeAttribute("aria-sort"); });
    fill();
  }
  fill();
  const lines = (join) => [columns, ...shown].map((row) => row.join(join));
  const markdown = () => {
    const text = lines(" | ");
    text.splice(1, 0, columns.map((_, index) => (index ? "---:" : "---")).join(" | "));
    return text.map((line) => `| ${line} |`).join("\n");
  };
  return el("div", {},
    el("div", { class: "controls" }, copyButton("copy as Markdown", markdown), copyButton("copy as TSV", () => lines("\t").join("\n"))),
    el("table", {}, el("thead", {}, el("tr", {}, ...heads)), body));
}

function copyButton(text, content) {
  const button = el("button", { type: "button" }, text);
  button.addEventListener("click", async () => {
    let done = true;
    try {
      await navigator.clipboard.writeText(content());
    } catch {
      // From a file:// page the clipboard may be closed: the old way needs a selection.
      const area = el("textarea", { style: "position:fixed;opacity:0" });
      area.value = content();
      document.body.append(area);
      area.select();
      done = document.execCommand("copy");
      area.remove();
    }
    button.textContent = done ? "copied" : "could not copy";
    setTimeout(() => { button.textContent = text; }, 1500);
  });
  return button;
}

// The drawing as it looks now: variables resolved, font and background inside, so that it stands alone.
function standalone(plot) {
  const source = plot.querySelector("svg");
  if (!source) return null;
  const copy = source.cloneNode(true);
  const style = getComputedStyle(document.documentElement);
  const resolve = (text) => text.replace(/var\((--[\w-]+)\)/g, (_, name) => style.getPropertyValue(name).trim());
  copy.setAttribute("xmlns", "http://www.w3.org/2000/svg");
  copy.prepend(svg("rect", { width: "100%", height: "100%", fill: style.getPropertyValue("--panel").trim() }));
  for (const node of copy.querySelectorAll("text")) {
    node.setAttribute("font-family", "system-ui, sans-serif");
    node.setAttribute("font-size", node.getAttribute("font-size") ?? "12");
    if (!node.hasAttribute("fill")) node.setAttribute("fill", "var(--ink)");
  }
  return { text: resolve(new XMLSerializer().serializeToString(copy)), width: Number(source.getAttribute("width")), height: Number(source.getAttribute("height")) };
}

function download(blob, name) {
  const link = el("a", { href: URL.createObjectURL(blob), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

function saveSvg(plot, name) {
  const made = standalone(plot);
  if (made) download(new Blob([made.text], { type: "image/svg+xml" }), `${name}.svg`);
}

function savePng(plot, name) {
  const made = standalone(plot);
  if (!made) return;
  const image = new Image();
  image.onload = () => {
    const canvas = el("canvas", { width: made.width * 2, height: made.height * 2 });
    const context = canvas.getContext("2d");
    context.scale(2, 2);
    context.drawImage(image, 0, 0, made.width, made.height);
    canvas.toBlob((blob) => download(blob, `${name}.png`));
  };
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(made.text)}`;
}

// Rows that every figure's table shares.
const COLUMNS = ["kernel", "shape", "kind", "TFLOPS", "of peak", "ratio", "low", "high", "error", "us", "host us", "rounds"];
function rowOf(record) {
  const reference = record.kernel === record.contender;
  return [
    nameOf(record.kernel), shapeOf(record), kindOf(record), number(record.tflops, 4), percent(record.peak_share, 1),
    reference ? "1" : number(record.ratio, 4), reference ? "" : number(record.ratio_low, 4), reference ? "" : number(record.ratio_high, 4),
    number(record.error, 3), number(record.us, 4), number(record.host_us, 3), record.rounds,
  ];
}
