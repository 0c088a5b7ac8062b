// The curve of a segment, with its observed rates.

const LEVEL = 1.96; // standard errors of a 95 % band or interval
const ROUNDING = 1e-6;
const HTML = document.createElement("div");
HTML.innerHTML = "<svg></svg>";
const SVG = HTML.firstChild.namespaceURI;

function shape(kind, attributes, ...children) {
  const made = document.createElementNS(SVG, kind);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

const sigmoid = (logit) => 1 / (1 + Math.exp(-logit));

// The segment's curve: its probability at a score, and its band there; the curve of all rows pooled where it has no fit.
function curveOf(data, segment) {
  if (data.about.samples) return sampledOf(data, segment);
  const logit = logitOf(data, segment);
  return {
    fitted: logit.fitted,
    at: (score) => sigmoid(logit.at(score)),
    band: (score) => [-1, 1].map((side) => sigmoid(logit.at(score) + side * LEVEL * logit.error(score))),
  };
}

// A curve that is no sigmoid, between the scores at which it is kept; it has no band, and ends with the window.
function sampledOf({ about, columns }, segment) {
  const fitted = Number.isFinite(columns.p0[segment]);
  const at = (score) => between(about, (i) => columns[`p${i}`][segment], score);
  return { fitted, at: fitted ? at : (score) => pooledAt(about, score), band: () => [NaN, NaN] };
}

function between(about, sample, score) {
  const [low, high] = about.window;
  const last = about.samples - 1;
  const place = (last * (score - low)) / (high - low);
  if (place < -ROUNDING || place > last + ROUNDING) return NaN;
  const before = Math.min(Math.max(Math.floor(place), 0), last - 1);
  const [p, q] = [sample(before), sample(before + 1)];
  return p + (place - before) * (q - p);
}

// The segment's log-odds at a score, and their standard error; of all rows pooled where it has no sigmoid.
function logitOf({ about, columns }, segment) {
  const [low, high] = about.window;
  const middle = (low + high) / 2;
  const fitted = Number.isFinite(columns.A[segment]);
  const [A, level] = fitted ? [columns.A[segment], columns.level[segment]] : about.pooled ?? [NaN, NaN];
  const [steepness, center, certainty] = ["steepness", "center", "certainty"].map((name) => columns[name]?.[segment] ?? NaN);
  return {
    fitted,
    at: (score) => -(level + A * (score - middle)),
    error: (score) => Math.hypot(steepness * ((score - middle) / (high - low) - center), certainty),
  };
}

function pooledAt(about, score) {
  if (!about.pooled) return NaN;
  if (about.samples) return between(about, (i) => about.pooled[i], score);
  const [low, high] = about.window;
  return sigmoid(-(about.pooled[1] + about.pooled[0] * (score - (low + high) / 2)));
}

// The segment's bins: score, rows, positives, rate and Wilson's interval of each; null if the page has none.
function binsOf({ bins }, segment) {
  const place = bins.place.get(segment);
  if (place === undefined) return null;
  const [start, end] = [bins.start[place], bins.start[place + 1]];
  return Array.from({ length: end - start }, (_, i) => {
    const [score, rows, positives] = ["scores", "rows", "positives"].map((name) => bins[name][start + i]);
    const rate = positives / rows;
    const square = LEVEL * LEVEL;
    const center = (positives + square / 2) / (rows + square);
    const half = (LEVEL * Math.sqrt(rate * (rows - positives) + square / 4)) / (rows + square);
    return { score, rows, positives, rate, low: Math.max(center - half, 0), high: Math.min(center + half, 1) };
  });
}

function along(low, high, number) {
  return Array.from({ length: number }, (_, i) => low + ((high - low) * i) / (number - 1));
}

// A small curve on axes that all rows of the table share.
function sparkline(data, segment) {
  const [WIDE, HIGH] = [72, 26];
  const [low, high, top] = data.about.window;
  const x = (score) => ((WIDE * (Math.min(Math.max(score, low), high) - low)) / (high - low)).toFixed(1);
  const y = (rate) => (1.5 + (HIGH - 3) * (1 - Math.min(rate / top, 1))).toFixed(1);
  const drawn = shape("svg", { viewBox: `0 0 ${WIDE} ${HIGH}`, width: WIDE, height: HIGH, "aria-hidden": true });
  const own = curveOf(data, segment);
  if (own.fitted) {
    const points = along(low, high, 25).map((score) => `${x(score)},${y(own.at(score))}`);
    drawn.append(shape("polyline", { points: points.join(" ") }));
  }
  for (const { score, rate } of binsOf(data, segment) ?? []) {
    drawn.append(shape("circle", { cx: x(score), cy: y(rate), r: 1.7 }));
  }
  return drawn;
}

// The curve with its band, that of all rows pooled, and the rates with their intervals.
function curve(data, segment, width) {
  const { about } = data;
  const own = curveOf(data, segment);
  const bins = binsOf(data, segment) ?? [];
  const scores = bins.map((bin) => bin.score);
  const [low, high] = [Math.min(about.window[0], ...scores), Math.max(about.window[1], ...scores)];
  const grid = along(low, high, 80);
  const band = grid.map(own.band);
  const banded = band.flat().every(Number.isFinite);
  const reached = [...(banded ? band.flat() : grid.map(own.at)), ...bins.map((bin) => bin.high)];
  const top = Math.min(Math.max(...reached.filter(Number.isFinite), 0.01) * 1.05, 1);

  const [WIDE, HIGH, LEFT, BOTTOM] = [Math.max(width, 240), 270, 48, 232];
  const x = (score) => (LEFT + ((WIDE - LEFT - 10) * (score - low)) / (high - low)).toFixed(1);
  const y = (rate) => (BOTTOM - ((BOTTOM - 10) * rate) / top).toFixed(1);
  const known = ([, rate]) => Number.isFinite(rate);
  const path = (ends) => ends.filter(known).map(([score, rate]) => `${x(score)},${y(Math.min(rate, top))}`).join(" ");
  const drawn = shape("svg", { viewBox: `0 0 ${WIDE} ${HIGH}`, role: "img", "aria-label": said(about, own, bins) });
  for (const rate of linearTicks(0, top, 5)) {
    drawn.append(
      shape("line", { class: "grid", x1: LEFT, x2: WIDE - 10, y1: y(rate), y2: y(rate) }),
      shape("text", { x: LEFT - 7, y: y(rate), class: "up" }, percent(rate)),
    );
  }
  for (const score of linearTicks(low, high, WIDE / 80)) {
    drawn.append(shape("text", { x: x(score), y: BOTTOM + 17, class: "across" }, short(score)));
  }
  drawn.append(shape("text", { x: WIDE - 10, y: HIGH - 4, class: "title" }, "score →"));
  if (about.pooled) {
    drawn.append(shape("polyline", { class: "pooled", points: path(grid.map((f) => [f, pooledAt(about, f)])) }));
  }
  if (own.fitted) {
    const ends = grid.map((score, i) => [score, band[i][1]]);
    if (banded) ends.push(...grid.map((score, i) => [score, band[i][0]]).reverse());
    if (banded) drawn.append(shape("polygon", { class: "band", points: path(ends) }));
    drawn.append(shape("polyline", { class: "fit", points: path(grid.map((f) => [f, own.at(f)])) }));
  }
  for (const bin of bins) {
    drawn.append(
      shape("line", { class: "interval", x1: x(bin.score), x2: x(bin.score), y1: y(bin.low), y2: y(Math.min(bin.high, top)) }),
      shape("circle", { cx: x(bin.score), cy: y(bin.rate), r: 3.5 }),
    );
  }
  return drawn;
}

function said(about, own, bins) {
  const rates = bins.map(({ score, rate }) => `${percent(rate)} at ${short(score)}`);
  const ofSegment = about.samples ? "The segment's curve" : "The segment's sigmoid with its 95 % band";
  const pooled = about.pooled ? `The ${about.samples ? "curve" : "sigmoid"} of all rows` : "No curve";
  const fit = own.fitted ? ofSegment : pooled;
  return `${fit}. ${rates.length ? `Observed rates by score: ${rates.join(", ")}` : "No observed rates"}.`;
}
