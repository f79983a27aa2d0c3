// The page: theme, heading, figures in order, and drawing anew when the width or the theme changes.
const THEMES = ["auto", "light", "dark"];
const system = matchMedia("(prefers-color-scheme: dark)");
let theme = "auto";
try { theme = localStorage.getItem("rungemm-theme") ?? "auto"; } catch { /* a file:// page may have no storage */ }

function applyTheme() {
  const dark = theme === "dark" || (theme === "auto" && system.matches);
  document.documentElement.dataset.theme = dark ? "dark" : "light";
  document.getElementById("theme").textContent = `theme: ${theme}`;
}
document.getElementById("theme").addEventListener("click", () => {
  theme = THEMES[(THEMES.indexOf(theme) + 1) % THEMES.length];
  try { localStorage.setItem("rungemm-theme", theme); } catch { /* as above */ }
  applyTheme();
});
system.addEventListener("change", applyTheme);
applyTheme();

function subtitle() {
  const card = DATA.card, e = DATA.environment;
  const peaks = Object.entries(card.peaks).map(([kind, value]) => `${kind} ${number(value)}`).join(", ");
  const versions = [["torch", e.torch], ["Triton", e.triton], ["CUDA", e.cuda], ["driver", e.driver], ["cuBLAS", e.cublas]].filter(([, version]) => version).map(([name, version]) => `${name} ${version}`).join(", ");
  return [["card", `${card.title}, ${card.sms} SMs, ${number(card.l2_mib)} MiB of L2, ${number(card.dram_gbs / 1000)} TB/s`],
    ["dense peaks", `${peaks} TFLOPS`],
    ["measured", `${DATA.records.length} results${e.date ? `, the newest of ${e.date.slice(0, 10)}` : ""}${versions ? `, with ${versions}` : ""}`],
    ["how", "contenders interleaved in random order, cold L2, normal random data, outputs checked against float64; ratios are medians of paired rounds"]];
}

document.title = `rungemm on ${DATA.card.title}`;
document.getElementById("subtitle").append(...subtitle().map(([term, text]) => el("div", {}, el("dt", {}, term), el("dd", {}, text))));
const main = document.getElementById("main"), toc = document.getElementById("toc");
for (const section of [glanceFigure(), ladderFigure(), sizeFigure(), heatFigure(), suiteFigure(), rooflineFigure(), chipFigure(), spreadFigure(), trustSection(), tableSection()]) {
  if (!section) continue;
  main.append(section);
  toc.append(el("a", { href: `#${section.id}` }, section.querySelector("h2").textContent));
}
if (!DATA.records.length) main.append(el("section", {}, el("p", {}, "No results yet: rungemm bench writes them.")));
document.getElementById("footer").textContent = `Peaks and limits: ${DATA.card.source}. Method: docs/method.md. Made by rungemm report from results/${DATA.card.name}/summary.json and the files beside it.`;

let drawnWidth = 0;
function drawAll() {
  if (main.clientWidth === drawnWidth) return;
  drawnWidth = main.clientWidth;
  redraws.forEach((redraw) => redraw());
}
new ResizeObserver(() => requestAnimationFrame(drawAll)).observe(main);
drawAll();
