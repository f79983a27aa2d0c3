// Scales, ticks and axes. A scale is a function from a value to a pixel, with its domain and ticks beside it.
function linear(domain, range) {
  const [a, b] = domain, [p, q] = range;
  const scale = (value) => p + ((value - a) / (b - a || 1)) * (q - p);
  scale.ticks = (count = 5) => {
    const rough = (b - a) / count || 1, power = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 5, 10].map((m) => m * power).find((s) => s >= rough);
    const ticks = [];
    for (let i = Math.ceil(a / step - 1e-9); i * step <= b + step * 1e-9; i += 1) ticks.push(i * step);
    return ticks;
  };
  return scale;
}

function logarithmic(domain, range, base = 10) {
  const inner = linear(domain.map(Math.log), range);
  const scale = (value) => inner(Math.log(value));
  scale.ticks = () => {
    const ticks = [], unit = Math.log(base);
    const first = Math.ceil(Math.log(domain[0]) / unit - 1e-9), last = Math.floor(Math.log(domain[1]) / unit + 1e-9);
    for (let power = first; power <= last; power += 1) ticks.push(base ** power);
    return ticks;
  };
  return scale;
}

// Grid lines with labels along the bottom or the left of a frame {left, top, right, bottom}.
function axisBelow(frame, scale, ticks, text, title) {
  const group = svg("g", {});
  for (const tick of ticks) {
    const x = scale(tick);
    group.append(
      svg("line", { x1: x, x2: x, y1: frame.top, y2: frame.bottom, stroke: "var(--rule)" }),
      label(x, frame.bottom + 16, text(tick), { "text-anchor": "middle", fill: "var(--soft)" }),
    );
  }
  if (title) {
    const middle = (frame.left + frame.right) / 2;
    group.append(label(middle, frame.bottom + 34, title, { "text-anchor": "middle", fill: "var(--soft)" }));
  }
  return group;
}

function axisLeft(frame, scale, ticks, text, title) {
  const group = svg("g", {});
  for (const tick of ticks) {
    const y = scale(tick);
    group.append(
      svg("line", { x1: frame.left, x2: frame.right, y1: y, y2: y, stroke: "var(--rule)" }),
      label(frame.left - 6, y + 4, text(tick), { "text-anchor": "end", fill: "var(--soft)" }),
    );
  }
  if (title) group.append(label(frame.left, frame.top - 8, title, { fill: "var(--soft)" }));
  return group;
}

// Labels that share a side never overlap: each is pushed down to at least `gap` below the one above it.
function spreadOut(positions, gap, least, most) {
  const order = positions.map((position, index) => [position, index]).sort((a, b) => a[0] - b[0]);
  const placed = new Array(positions.length);
  let floor = least;
  for (const [position, index] of order) {
    placed[index] = Math.max(position, floor);
    floor = placed[index] + gap;
  }
  let ceiling = most;
  for (const [, index] of order.reverse()) {
    placed[index] = Math.min(placed[index], ceiling);
    ceiling = placed[index] - gap;
  }
  return placed;
}
