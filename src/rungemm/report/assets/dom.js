// Elements, colours, number formats and the tooltip: what every figure uses.
const DATA = JSON.parse(document.getElementById("data").textContent);

function el(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [key, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else node.setAttribute(key, value === true ? "" : value);
  }
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}

function svg(tag, attributes = {}, ...children) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [key, value] of Object.entries(attributes)) {
    if (value !== null && value !== undefined) node.setAttribute(key, value);
  }
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}

function label(x, y, text, attributes = {}) {
  return svg("text", { x, y, ...attributes }, String(text));
}

// Numbers: three significant digits unless said, thin where large.
function number(value, digits = 3) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  const size = Math.abs(value);
  if (size !== 0 && size < 1e-3) return value.toExponential(1);
  if (size >= 10 ** digits) return Math.round(value).toLocaleString("en-US");
  return String(Number(value.toPrecision(digits)));
}
// The same with its zeros kept, for columns that are read down.
function figures(value, digits = 3) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  return Math.abs(value) >= 10 ** digits ? Math.round(value).toLocaleString("en-US") : value.toPrecision(digits);
}
function percent(share, digits = 0) {
  return share === null || share === undefined ? "–" : `${(100 * share).toFixed(digits)}%`;
}
function ratioText(value) {
  return value === null || value === undefined ? "–" : `${value.toFixed(3)}x`;
}
function shapeOf(record) {
  const batch = record.batch === 1 ? "" : `${record.batch}x`;
  return `${batch}${record.m}x${record.n}x${record.k}`;
}
function kindOf(record) {
  const precision = record.precision === "ieee" ? "" : ` ${record.precision}`;
  return `${record.dtype === "fp32" && precision ? precision.trim() : record.dtype} ${record.layout}`;
}
function peakOf(record) {
  if (record.dtype !== "fp32") return DATA.card.peaks[record.dtype.startsWith("fp8") ? "fp8" : record.dtype];
  if (record.precision === "tf32x3") return DATA.card.peaks.tf32 / 3;
  return DATA.card.peaks[record.precision === "ieee" ? "fp32" : "tf32"];
}
function unique(values) {
  return [...new Set(values)];
}
function by(values, key) {
  const groups = new Map();
  for (const value of values) {
    const name = key(value);
    if (!groups.has(name)) groups.set(name, []);
    groups.get(name).push(value);
  }
  return groups;
}

// Suites in the order of their interest; what is not named comes last.
const SUITES = ["ladder", "cross27", "tensor", "squares", "llm", "models", "training", "decode", "ragged", "fp32-small", "deep", "batch", "peers"];
function suiteOrder(suite) {
  return SUITES.indexOf(suite) >>> 0;
}
function bySuite(a, b) {
  return suiteOrder(a.suite) - suiteOrder(b.suite) || a.suite.localeCompare(b.suite);
}

// One colour a contender, the same in every figure; the reference is always grey.
const FIXED = { cublas: "var(--ref)", champion: "var(--c0)", library: "var(--c2)", "torch-compile": "var(--c1)" };
const taken = new Map();
function colourOf(kernel) {
  if (FIXED[kernel]) return FIXED[kernel];
  if (kernel.startsWith("champion")) return "var(--c0)";
  if (!taken.has(kernel)) taken.set(kernel, `var(--c${[1, 3, 4, 5, 6, 2][taken.size % 6]})`);
  return taken.get(kernel);
}
function nameOf(kernel) {
  return kernel === "cublas" ? "cuBLAS" : kernel.replaceAll("_", " ");
}

// What a record says when pointed at.
function describe(record) {
  const lines = [`${nameOf(record.kernel)}  ${shapeOf(record)} ${kindOf(record)}`];
  lines.push(`${number(record.tflops)} TFLOPS, ${percent(record.peak_share, 1)} of peak, ${number(record.us, 4)} us`);
  if (record.kernel !== record.contender && record.ratio !== null) {
    const interval = `[${record.ratio_low.toFixed(3)}, ${record.ratio_high.toFixed(3)}]`;
    lines.push(`${ratioText(record.ratio)} ${nameOf(record.contender)} ${interval}, ${record.rounds} rounds`);
  }
  lines.push(`error ${number(record.error)} (${nameOf(record.contender)} ${number(record.contender_error)})`);
  if (record.config) lines.push(Object.entries(record.config).map(([key, value]) => `${key}=${value}`).join(" "));
  if (!record.cold_l2) lines.push("WARM L2");
  if (record.data !== "normal") lines.push(`data: ${record.data}`);
  return lines.join("\n");
}

const tip = document.getElementById("tip");
function withTip(node, text) {
  node.classList.add("mark");
  node.setAttribute("tabindex", "0");
  node.append(svg("title", {}, text));
  const show = (event) => {
    tip.textContent = text;
    tip.hidden = false;
    const box = node.getBoundingClientRect();
    const x = event.clientX ?? box.left + box.width / 2;
    const y = event.clientY ?? box.top;
    const size = tip.getBoundingClientRect();
    tip.style.left = `${Math.max(8, Math.min(x + 14, innerWidth - size.width - 8))}px`;
    tip.style.top = `${y + size.height + 24 > innerHeight ? Math.max(8, y - size.height - 12) : y + 16}px`;
  };
  const hide = () => { tip.hidden = true; };
  node.addEventListener("pointermove", show);
  node.addEventListener("pointerleave", hide);
  node.addEventListener("focus", show);
  node.addEventListener("blur", hide);
  return node;
}
