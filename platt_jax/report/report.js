"use strict";
{
  const PER_PAGE = 50;
  const [STATUS, FLAGS] = [1, 2];
  const element = (id) => document.getElementById(id);
  const { columns, rows } = JSON.parse(element("data").textContent);
  const isText = columns.map((_, i) => i <= FLAGS);
  const headings = [...element("problems").querySelectorAll("thead th")];
  const body = element("problems").tBodies[0];
  const collator = new Intl.Collator("en", { numeric: true });
  let shown = rows;
  let page = 0;
  let by = null; // the column sorted by; null for the worst first
  let descending = false;

  const flagsOf = (row) => (row[FLAGS] ? row[FLAGS].split(", ") : []);

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
    shown = rows.filter(
      (row) =>
        (!query || row[0].toLowerCase().includes(query)) &&
        (!status || row[STATUS] === status) &&
        (!flag || flagsOf(row).includes(flag)),
    );
    if (by !== null) shown.sort(compare);
    page = 0;
    render();
  }

  function cell(value, i) {
    const made = document.createElement(i === 0 ? "th" : "td");
    const text = typeof value === "number" ? number(value) : (value ?? "–");
    if (i === 0) {
      made.scope = "row";
      made.append(document.createElement("bdi"));
      made.firstChild.textContent = text;
    } else {
      made.textContent = text;
    }
    made.classList.toggle("n", !isText[i]);
    return made;
  }

  function number(value) {
    return Number.isInteger(value) ? value.toLocaleString("en") : String(value).replace("-", "−");
  }

  function render() {
    const start = page * PER_PAGE;
    const lines = shown.slice(start, start + PER_PAGE).map((row) => {
      const line = document.createElement("tr");
      line.append(...row.map(cell));
      return line;
    });
    body.replaceChildren(...lines);
    const last = Math.max(Math.ceil(shown.length / PER_PAGE) - 1, 0);
    const n = (count) => count.toLocaleString("en");
    element("count").textContent = shown.length
      ? `${n(start + 1)} to ${n(start + lines.length)} of ${n(shown.length)} segments`
      : "No segment is like that";
    element("first").disabled = element("previous").disabled = page === 0;
    element("next").disabled = element("last").disabled = page === last;
    headings.forEach((heading, i) => {
      heading.ariaSort = i !== by ? "none" : descending ? "descending" : "ascending";
    });
  }

  function turn(to) {
    page = to;
    render();
  }

  function offer(id, values) {
    const counts = new Map();
    values.forEach((value) => counts.set(value, (counts.get(value) ?? 0) + 1));
    const options = [...counts].map(
      ([value, count]) => new Option(`${value} (${count.toLocaleString("en")})`, value),
    );
    element(id).append(new Option("all", ""), ...options);
    element(id).addEventListener("change", select);
  }

  offer("status", rows.map((row) => row[STATUS]));
  offer("flag", rows.flatMap(flagsOf));
  element("query").addEventListener("input", select);
  element("controls").addEventListener("submit", (event) => event.preventDefault());
  element("first").addEventListener("click", () => turn(0));
  element("previous").addEventListener("click", () => turn(page - 1));
  element("next").addEventListener("click", () => turn(page + 1));
  element("last").addEventListener("click", () => turn(Math.ceil(shown.length / PER_PAGE) - 1));
  headings.forEach((heading, i) => {
    heading.classList.toggle("n", !isText[i]);
    heading.firstChild.addEventListener("click", () => {
      descending = by === i && !descending;
      by = i;
      select();
    });
  });
  select();
}
