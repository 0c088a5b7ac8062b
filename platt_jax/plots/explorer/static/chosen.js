// What the page says of one segment.

function element(kind, text, attributes = {}) {
  const made = document.createElement(kind);
  if (text !== undefined) made.textContent = text;
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  return made;
}

// An id as text of its own direction.
function named(kind, text) {
  const made = element(kind);
  made.append(element("bdi", text));
  return made;
}

function verdict({ columns }, i) {
  const [rows, positives, expected, q] = ["rows", "positives", "expected", "q"].map((name) => columns[name][i]);
  if (!rows) return "It has no rows here.";
  if (!Number.isFinite(q)) return "It could not be tested.";
  const ratio = `${counted(positives, "positive")} where ${short(expected)} were expected`;
  if (!columns.off[i]) return `Not reliably off: ${ratio} (${qSaid(q)}).`;
  const slope = `a slope of ${short(columns.slope[i], 2)}, 1 predicted`;
  const [of, said] = [
    ["its level", ratio],
    ["its slope", slope],
    ["level and slope", `${ratio}; ${slope}`],
    ["neither level nor slope", `labels differ more from single predictions than chance explains; ${ratio}`],
  ][columns.kind[i]];
  return `Off by ${of}: ${said} (${qSaid(q)}).`;
}

// The lines of the note beside a hovered segment.
function brief(data, i) {
  const { columns, names } = data;
  const lines = [element("span", `${counted(columns.rows[i], "row")}, O/E ${short(columns.ratio[i])}`)];
  lines.push(element("span", `${counted(columns.positives[i], "positive")}, ${short(columns.expected[i])} expected`));
  if (columns.off[i]) lines.push(element("span", `off, ${qSaid(columns.q[i])}`, { class: "off" }));
  return names ? [named("strong", names[i]), ...lines] : lines;
}

function spoken(data, i) {
  return `${data.names[i]}, ${counted(data.columns.rows[i], "row")}. ${verdict(data, i)}`;
}

// The panel of the selected segment, this many pixels wide.
function chosen(data, i, width) {
  const { about, columns } = data;
  const own = curveOf(data, i);
  const said = element("p", verdict(data, i), { class: columns.off[i] ? "said off" : "said" });
  const legend = element("p", undefined, { class: "key" });
  const marks = { fit: "sigmoid, 95 % band", rate: "observed, 95 % interval", pooled: "all rows pooled" };
  if (about.samples) marks.fit = about.curve;
  if (!own.fitted) delete marks.fit;
  if (!about.pooled) delete marks.pooled;
  const binned = binsOf(data, i);
  if (!binned) delete marks.rate;
  for (const [kind, text] of Object.entries(marks)) {
    const mark = element("span");
    mark.append(element("i", undefined, { class: kind }), text);
    legend.append(mark, " ");
  }
  const notes = [];
  if (!own.fitted) notes.push("It has no fit of its own.");
  if (!binned && columns.rows[i]) {
    notes.push(`Rates by score are kept of ${segments(about.binned[0])}, the most urgent and the largest; not of this one.`);
  }
  return [named("h3", data.names[i]), said, curve(data, i, width), legend, ...notes.map((x) => element("p", x)), facts(data, i)];
}

function facts({ about, columns }, i) {
  const width = about.window[1] - about.window[0];
  const A = columns.A?.[i];
  const flags = flagsOf(about, columns.flags[i]);
  const terms = {
    rows: count(columns.rows[i]),
    "observed / expected": short(columns.ratio[i]),
    "A ± error": Number.isFinite(A) ? `${short(A, 4)} ± ${short(columns.steepness[i] / width, 2)}` : NONE,
    "fitted rows": short(columns.fitted[i], 5),
    status: about.statuses[columns.status[i]],
    flags: flags.length ? flags.join(", ") : "none",
  };
  if (about.samples) delete terms["A ± error"];
  const list = element("dl");
  for (const [term, value] of Object.entries(terms)) {
    const pair = element("div");
    pair.append(element("dt", term), element("dd", value));
    list.append(pair);
  }
  return list;
}

function flagsOf(about, bits) {
  return Object.keys(about.flags).filter((name) => bits & about.flags[name]);
}
