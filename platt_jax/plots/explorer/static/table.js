// The table of the segments shown, in pages.

const PER_PAGE = 20;
const TYPICAL = 1000; // how many segments decide how many decimals a column has

// What each column has of a segment: a text, a value, or a drawing.
function columnsOf({ about, columns, names }) {
  const middle = (about.window[0] + about.window[1]) / 2;
  const number = (name) => (i) => columns[name][i];
  const made = {
    segment: { text: (i) => names[i] },
    curve: {},
    rows: { value: number("rows") },
    positives: { value: number("positives") },
    expected: { value: number("expected") },
    "O/E": { value: number("ratio") },
    excess: { value: (i) => columns.positives[i] - columns.expected[i] },
    "q-value": { value: number("q"), show: qValue },
    A: { value: number("A") },
    B: { value: (i) => columns.level[i] - columns.A[i] * middle },
    "fitted rows": { value: number("fitted") },
    status: { text: (i) => about.statuses[columns.status[i]] },
    flags: { text: (i) => flagsOf(about, columns.flags[i]).join(", ") },
    shrinkage: { value: number("shrinkage") },
  };
  const shown = Object.entries(made).filter(([name]) => name in about.meanings);
  const typical = Array.from({ length: Math.min(about.number, TYPICAL) }, (_, i) => i);
  for (const [, column] of shown) {
    if (column.value) column.decimals = decimalsOf(typical.map(column.value).filter(Number.isFinite));
  }
  return shown.map(([name, column]) => ({ name, ...column }));
}

// As many as give a typical number three digits; none where all are whole.
function decimalsOf(values) {
  if (values.every(Number.isInteger)) return 0;
  const sizes = values.map(Math.abs).filter((size) => size > 0).sort((a, b) => a - b);
  return Math.min(Math.max(2 - Math.floor(Math.log10(sizes[sizes.length >> 1])), 1), 8);
}

// A text that is sorted by the numbers in it: shop 9 before shop 10. A collator takes ten times as long.
function sortable(text) {
  return text.toLowerCase().replace(/\d+/g, (digits) => digits.padStart(20, "0"));
}

class Table {
  constructor(root, data, tell, signal) {
    this.part = (name) => root.querySelector(`[data-part="${name}"]`);
    this.data = data;
    this.tell = tell;
    this.columns = columnsOf(data);
    this.body = root.querySelector("tbody");
    this.by = null; // the column sorted by; null for the worst first
    this.descending = false;
    this.page = 0;
    this.selected = -1;
    this.headings = this.columns.map((column, i) => this.heading(column, i));
    root.querySelector("thead tr").replaceChildren(...this.headings);
    const turns = { first: () => 0, previous: () => this.page - 1, next: () => this.page + 1, last: () => this.last };
    for (const [name, to] of Object.entries(turns)) {
      this.part(name).addEventListener("click", () => this.turn(to()), { signal });
    }
    this.part("worst").addEventListener("click", () => this.sort(null), { signal });
    this.body.addEventListener("click", (event) => this.press(event), { signal });
    this.body.addEventListener("pointerover", (event) => tell.hover(this.segmentOf(event)), { signal });
    this.body.addEventListener("pointerleave", () => tell.hover(-1), { signal });
  }

  heading({ name, text, value }, i) {
    const made = element("th", undefined, { scope: "col" });
    if (!text && !value) {
      made.textContent = name;
      return made;
    }
    const button = element("button", name, { type: "button" });
    button.append(element("span", undefined, { "aria-hidden": true }));
    button.addEventListener("click", () => this.sort(i));
    made.append(button);
    made.classList.toggle("n", Boolean(value));
    return made;
  }

  // Show these segments, given with the worst first.
  show(segments) {
    this.given = segments;
    this.arrange();
  }

  sort(by) {
    this.descending = by !== null && this.by === by && !this.descending;
    this.by = by;
    this.arrange();
  }

  arrange() {
    this.shown = this.by === null ? this.given : this.sorted(this.columns[this.by]);
    this.last = Math.max(Math.ceil(this.shown.length / PER_PAGE) - 1, 0);
    this.turn(0);
  }

  sorted({ name, text, value }) {
    const side = this.descending ? -1 : 1;
    if (text && !(name === "segment" && this.data.numeric)) {
      const keys = [];
      for (const i of this.given) keys[i] = sortable(text(i));
      return this.given.slice().sort((a, b) => side * (keys[a] < keys[b] ? -1 : keys[a] > keys[b] ? 1 : 0));
    }
    const of = value ?? ((i) => Number(text(i)));
    const values = new Float64Array(this.data.about.number);
    for (const i of this.given) values[i] = side * of(i);
    // Where there is no number stays last in either direction.
    const rank = (x) => (Number.isNaN(x) ? Infinity : x);
    return this.given.slice().sort((a, b) => values[a] - values[b] || rank(values[a]) - rank(values[b]) || 0);
  }

  turn(to) {
    this.page = to;
    this.render();
  }

  // Turn to the page of the segment that is this many after the selected one, and return it.
  after(by) {
    const place = this.shown.indexOf(this.selected);
    const to = Math.min(Math.max((place < 0 ? -Math.sign(by) : place) + by, 0), this.shown.length - 1);
    if (to < 0) return this.selected;
    this.page = Math.floor(to / PER_PAGE);
    return this.shown[to];
  }

  select(segment) {
    this.selected = segment;
    this.render();
  }

  press(event) {
    const segment = this.segmentOf(event);
    if (segment < 0) return;
    this.tell.select(segment);
    this.body.querySelector(`[data-segment="${segment}"] button`)?.focus();
  }

  segmentOf(event) {
    const line = event.target.closest("tr");
    return line ? Number(line.dataset.segment) : -1;
  }

  cell(column, segment) {
    if (column.name === "segment") {
      const made = element("th", undefined, { scope: "row" });
      const button = named("button", column.text(segment));
      button.type = "button";
      made.append(button);
      return made;
    }
    const made = element("td");
    if (column.text) made.textContent = column.text(segment) || NONE;
    else if (column.value) made.textContent = this.number(column, column.value(segment));
    else made.append(sparkline(this.data, segment));
    made.classList.toggle("n", Boolean(column.value));
    return made;
  }

  number({ show, decimals }, value) {
    return show && Number.isFinite(value) ? show(value) : decimal(value, decimals);
  }

  render() {
    const { page, last, shown } = this;
    const start = page * PER_PAGE;
    const lines = Array.from(shown.slice(start, start + PER_PAGE), (segment) => {
      const line = element("tr", undefined, { "data-segment": segment });
      if (segment === this.selected) line.setAttribute("aria-current", "true");
      line.append(...this.columns.map((column) => this.cell(column, segment)));
      return line;
    });
    this.body.replaceChildren(...lines);
    this.part("count").textContent = shown.length
      ? `${count(start + 1)} to ${count(start + lines.length)} of ${segments(shown.length)}`
      : "No segment is like that";
    this.part("first").disabled = this.part("previous").disabled = page === 0;
    this.part("next").disabled = this.part("last").disabled = page === last;
    this.part("worst").disabled = this.by === null;
    this.headings.forEach((heading, i) => {
      if (heading.firstElementChild) heading.ariaSort = i !== this.by ? "none" : this.descending ? "descending" : "ascending";
    });
  }
}
