"use strict";
{
  const PER_PAGE = 50;
  const NAMED = 10;
  const [WIDE, HIGH] = [72, 26]; // of a curve, in pixels
  const element = (id) => document.getElementById(id);
  const parsed = document.createElement("div");
  parsed.innerHTML = "<svg></svg>";
  const SVG = parsed.firstChild.namespaceURI;
  const { columns, rows, window: axes, total } = JSON.parse(element("data").textContent);
  const [SEGMENT, CURVE, STATUS, FLAGS, Q, A, B] = [
    "segment", "curve", "status", "flags", "q-value", "A", "B",
  ].map((name) => columns.indexOf(name));
  const isText = columns.map((_, i) => [SEGMENT, STATUS, FLAGS].includes(i));
  const decimals = columns.map((_, i) => (isText[i] || i === CURVE ? 0 : decimalsOf(i)));
  const headings = [...element("problems").querySelectorAll("thead th")];
  const body = element("problems").tBodies[0];
  const collator = new Intl.Collator("en", { numeric: true });
  let shown = rows;
  let page = 0;
  let by = null; // the column sorted by; null for the worst first
  let descending = false;

  const flagsOf = (row) => (row[FLAGS] ? row[FLAGS].split(", ") : []);

  // As many as give a typical number of the column three digits; none where all are whole.
  function decimalsOf(i) {
    const values = rows.map((row) => row[i]).filter((value) => value !== null);
    if (values.every(Number.isInteger)) return 0;
    const sizes = values.map(Math.abs).filter((size) => size > 0).sort((a, b) => a - b);
    const typical = sizes[Math.floor(sizes.length / 2)];
    return Math.min(Math.max(2 - Math.floor(Math.log10(typical)), i === Q ? 4 : 1), 8);
  }

  function compare(one, other) {
    const [a, b] = [one[by], other[by]];
    // Where there is no number stays last in either direction.
    if (a === null || b === null) return (a === null) - (b === null);
    const order = isText[by] ? collator.compare(a, b) : a - b;
    return descending ? -order : order;
  }

  function select() {
    const query = element("query").value.trim().toLowerCase();
    const [status, flag] = [element("status").value, element("flag").value];
    const most = element("q").value;
    shown = rows.filter(
      (row) =>
        (!query || row[SEGMENT].toLowerCase().includes(query)) &&
        (!status || row[STATUS] === status) &&
        (!flag || flagsOf(row).includes(flag)) &&
        (!most || (row[Q] !== null && row[Q] <= Number(most))),
    );
    if (by !== null) shown.sort(compare);
    page = 0;
    render();
    searchOthers(query);
  }

  function cell(row, value, i) {
    const made = document.createElement(i === SEGMENT ? "th" : "td");
    if (i === CURVE) {
      made.append(curve(row));
    } else if (i === SEGMENT) {
      made.scope = "row";
      made.append(document.createElement("bdi"));
      made.firstChild.textContent = value;
    } else {
      made.textContent = typeof value === "number" ? number(value, i) : (value ?? "–");
    }
    made.classList.toggle("n", !isText[i] && i !== CURVE);
    return made;
  }

  function number(value, i) {
    if (i === Q && value < 0.00005) return "<0.0001";
    const digits = { minimumFractionDigits: decimals[i], maximumFractionDigits: decimals[i] };
    return value.toLocaleString("en", digits).replace("-", "−");
  }

  // The sigmoid as a line, and the observed rates as dots, on axes that all rows of the table share.
  function curve(row) {
    const [low, high, top] = axes;
    const x = (score) => (WIDE * (score - low)) / (high - low);
    const y = (rate) => 1.5 + (HIGH - 3) * (1 - Math.min(rate / top, 1));
    const drawn = shape("svg", { viewBox: `0 0 ${WIDE} ${HIGH}`, width: WIDE, height: HIGH });
    drawn.setAttribute("aria-hidden", "true");
    if (row[A] !== null && row[B] !== null) {
      const points = Array.from({ length: 25 }, (_, i) => low + ((high - low) * i) / 24).map(
        (score) => `${x(score).toFixed(1)},${y(1 / (1 + Math.exp(row[A] * score + row[B]))).toFixed(1)}`,
      );
      drawn.append(shape("polyline", { points: points.join(" ") }));
    }
    const rates = row[CURVE];
    for (let i = 0; i < rates.length; i += 2) {
      const score = Math.min(Math.max(rates[i], low), high);
      drawn.append(shape("circle", { cx: x(score).toFixed(1), cy: y(rates[i + 1]).toFixed(1), r: 2 }));
    }
    return drawn;
  }

  function shape(kind, attributes) {
    const made = document.createElementNS(SVG, kind);
    Object.entries(attributes).forEach(([name, value]) => made.setAttribute(name, value));
    return made;
  }

  const n = (count) => count.toLocaleString("en");
  const segments = (count) => `${n(count)} segment${count === 1 ? "" : "s"}`;

  // What the table does not hold cannot be found in it.
  function none() {
    if (rows.length === total) return "No segment is like that";
    return `None of the ${segments(rows.length)} in this table is like that`;
  }

  let others = null; // the ids of segments that the table does not hold

  async function read() {
    const packed = Uint8Array.from(atob(element("others").textContent), (c) => c.charCodeAt(0));
    const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
    others = JSON.parse(await new Response(stream).text());
  }

  async function searchOthers(query) {
    element("rest").textContent = "";
    if (!query || rows.length === total) return;
    if (others === null) await read();
    // Someone may have typed on.
    if (query !== element("query").value.trim().toLowerCase()) return;
    const found = others.filter((name) => name.toLowerCase().includes(query));
    const some = found.slice(0, NAMED).join(", ") + (found.length > NAMED ? ", …" : "");
    element("rest").textContent = found.length
      ? `Not in this table, as less urgent, but like that: ${segments(found.length)}: ${some}`
      : `None of the ${n(others.length)} less urgent ones that it does not hold is like that`;
  }

  function render() {
    const start = page * PER_PAGE;
    const lines = shown.slice(start, start + PER_PAGE).map((row) => {
      const line = document.createElement("tr");
      line.append(...row.map((value, i) => cell(row, value, i)));
      return line;
    });
    body.replaceChildren(...lines);
    const last = Math.max(Math.ceil(shown.length / PER_PAGE) - 1, 0);
    element("count").textContent = shown.length
      ? `${n(start + 1)} to ${n(start + lines.length)} of ${segments(shown.length)}`
      : none();
    element("first").disabled = element("previous").disabled = page === 0;
    element("next").disabled = element("last").disabled = page === last;
    element("worst").disabled = by === null;
    headings.forEach((heading, i) => {
      if (i !== CURVE) heading.ariaSort = i !== by ? "none" : descending ? "descending" : "ascending";
    });
  }

  function turn(to) {
    page = to;
    render();
  }

  function sort(column) {
    descending = by === column && !descending;
    by = column;
    select();
  }

  function offer(id, values) {
    const counts = new Map();
    values.forEach((value) => counts.set(value, (counts.get(value) ?? 0) + 1));
    const options = [...counts].map(([value, count]) => new Option(`${value} (${n(count)})`, value));
    element(id).append(new Option("all", ""), ...options);
  }

  offer("status", rows.map((row) => row[STATUS]));
  offer("flag", rows.flatMap(flagsOf));
  ["status", "flag", "q"].forEach((id) => element(id).addEventListener("change", select));
  element("query").addEventListener("input", select);
  element("controls").addEventListener("submit", (event) => event.preventDefault());
  element("first").addEventListener("click", () => turn(0));
  element("previous").addEventListener("click", () => turn(page - 1));
  element("next").addEventListener("click", () => turn(page + 1));
  element("last").addEventListener("click", () => turn(Math.ceil(shown.length / PER_PAGE) - 1));
  element("worst").addEventListener("click", () => {
    descending = false;
    sort(null);
  });
  headings.forEach((heading, i) => {
    heading.classList.toggle("n", !isText[i] && i !== CURVE);
    if (i !== CURVE) heading.firstChild.addEventListener("click", () => sort(i));
  });
  select();
}
