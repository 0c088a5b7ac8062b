// Which segments are shown: by id, status, flag, q-value, and expected positives and ratio.

class Filters {
  constructor(root, data, changed, signal) {
    this.part = (name) => root.querySelector(`[data-part="${name}"]`);
    this.data = data;
    this.ends = [...this.part("region").querySelectorAll("input")];
    this.offer();
    const listen = (on, kind, react) => on.addEventListener(kind, react, { signal });
    for (const name of ["status", "flag", "q"]) listen(this.part(name), "change", changed);
    listen(this.part("query"), "input", changed);
    listen(this.part("region"), "input", changed);
    listen(this.part("controls"), "submit", (event) => event.preventDefault());
    listen(this.part("clear"), "click", () => {
      this.part("controls").reset();
      changed();
    });
  }

  offer() {
    const { about, columns } = this.data;
    const bits = Object.keys(about.flags);
    const statuses = new Uint32Array(about.statuses.length);
    const flags = new Uint32Array(bits.length);
    for (let i = 0; i < about.number; i++) {
      statuses[columns.status[i]]++;
      if (columns.flags[i]) bits.forEach((name, k) => (flags[k] += Boolean(columns.flags[i] & about.flags[name])));
    }
    const options = (names, counts) =>
      names.flatMap((name, k) => (counts[k] ? [new Option(`${name} (${count(counts[k])})`, name)] : []));
    this.part("status").replaceChildren(new Option("all", ""), ...options(about.statuses, statuses));
    this.part("flag").replaceChildren(new Option("all", ""), ...options(bits, flags));
    const most = [0.01, about.fdr, 0.2].map((q) => new Option(q, q));
    this.part("q").replaceChildren(new Option("all", ""), ...most);
  }

  get region() {
    const ends = this.ends.map((end) => (end.value === "" ? null : Number(end.value)));
    return ends.every((end) => end === null) ? null : ends;
  }

  set region(ends) {
    this.ends.forEach((end, i) => (end.value = ends?.[i] ?? ""));
  }

  // The segments shown, the worst first, but those whose id is just the query before all.
  apply() {
    const { about, columns, names } = this.data;
    const query = this.part("query").value.trim().toLowerCase();
    const [status, flag, most] = ["status", "flag", "q"].map((name) => this.part(name).value);
    const { region } = this;
    const all = Uint32Array.from({ length: about.number }, (_, i) => i);
    const tests = [];
    const [code, bit] = [about.statuses.indexOf(status), about.flags[flag]];
    if (status) tests.push((i) => columns.status[i] === code);
    if (flag) tests.push((i) => columns.flags[i] & bit);
    // The numbers here are rounded; what is off was decided before.
    if (most) tests.push(Number(most) === about.fdr ? (i) => columns.off[i] : (i) => columns.q[i] <= Number(most));
    if (region) tests.push(within(columns, region));
    if (query) {
      this.lower ??= names.map((name) => name.toLowerCase());
      tests.push((i) => this.lower[i].includes(query));
    }
    if (!tests.length) {
      this.data.mask = null;
      return all;
    }
    const shown = all.filter((i) => tests.every((test) => test(i)));
    this.data.mask = new Uint8Array(about.number);
    for (const i of shown) this.data.mask[i] = 1;
    if (!query) return shown;
    const exact = shown.filter((i) => this.lower[i] === query);
    if (exact.length) shown.set([...exact, ...shown.filter((i) => this.lower[i] !== query)]);
    return shown;
  }
}

function within(columns, [fewest, most, lowest, highest]) {
  const [a, b, c, d] = [fewest ?? 0, most ?? Infinity, lowest ?? 0, highest ?? Infinity];
  const { expected, ratio } = columns;
  return (i) => expected[i] >= a && expected[i] <= b && ratio[i] >= c && ratio[i] <= d;
}
