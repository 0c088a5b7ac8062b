// The page: funnel, selected segment, filters and table.

// `block(i)` is a promise of the bytes of block i; `tell` has, if anything, select(segment) and region(ends).
async function explorer(root, about, block, tell = {}) {
  const part = (name) => root.querySelector(`[data-part="${name}"]`);
  const read = async (i, ...layouts) => unpacked(await inflated(await block(i)), ...layouts);
  const [ofRows, ofFits, ofBinned, ofBins] = about.layouts;
  const data = { about, columns: await read(0, [ofRows, about.number]), names: null, mask: null };
  const { columns } = data;
  columns.ratio = columns.positives.map((positives, i) => positives / columns.expected[i]);
  describe(root, data);
  const ended = new AbortController();
  const view = { close: () => ended.abort() };
  let [filters, table, pointing] = [];

  const funnel = about.funnel ? new Funnel(part("plot"), data) : null;
  part("plot").closest(".view").hidden = !funnel;
  if (funnel) {
    part("beyond").textContent = funnel.beyond ? `${count(funnel.beyond)} beyond the axis, at its ends` : "";
    const step = (by) => table && select(table.after(by));
    const region = (ends) => filters && brush(ends);
    pointing = new Pointing(funnel, { select, step, region, describe: (i) => brief(data, i) }, ended.signal);
  }
  const draw = () => {
    root.classList.toggle("dark", isDark(root.parentElement));
    funnel?.draw();
    pointing?.draw();
  };
  draw();
  performance.mark("platt_jax funnel");
  watch(part("plot"), () => [draw(), redraw()], ended.signal);

  function select(segment) {
    if (!table || !(segment >= 0)) return;
    table.select(segment);
    pointing?.select(segment);
    redraw();
    speak(segment);
    tell.select?.(segment);
  }

  function redraw() {
    const panel = part("chosen");
    if (table?.selected >= 0) panel.replaceChildren(...chosen(data, table.selected, panel.clientWidth - 32));
  }

  // A screen reader reads the value of the slider if that has the focus, else the status.
  function speak(segment) {
    const said = spoken(data, segment);
    part("said").textContent = document.activeElement === pointing?.canvas ? "" : said;
    if (!pointing) return;
    pointing.canvas.ariaValueNow = segment + 1;
    pointing.canvas.ariaValueText = said;
  }

  function brush(ends) {
    filters.region = ends;
    filter();
  }

  function filter() {
    table.show(filters.apply());
    part("clear").disabled = !data.mask;
    if (pointing) pointing.region = filters.region;
    draw();
    tell.region?.(filters.region);
  }

  Object.assign(columns, await read(1, [ofFits, about.number]));
  data.names = texts(await inflated(await block(2)));
  data.numeric = data.names.every((name) => /^-?\d+$/.test(name));
  data.bins = placed(await read(3, [ofBinned, about.binned[0]], [ofBins, about.binned[1]]));
  filters = new Filters(root, data, filter, ended.signal);
  table = new Table(root, data, { select, hover: (i) => pointing?.hover(i) }, ended.signal);
  filter();
  if (about.number) select(0);
  performance.mark("platt_jax explorer");
  return Object.assign(view, { select });
}

// What is said of all segments.
function describe(root, { about, columns }) {
  const part = (name) => root.querySelector(`[data-part="${name}"]`);
  const off = columns.off.reduce((sum, x) => sum + x, 0);
  const tested = columns.q.reduce((sum, q) => sum + !Number.isNaN(q), 0);
  const megabytes = short(Math.max(about.size / 1e6, 0.1), 2);
  part("held").textContent = `${count(off)} of ${segments(tested)} tested ${off === 1 ? "is" : "are"} off`;
  part("size").textContent = `The numbers of all ${count(about.number)} are in this page, ${megabytes} MB deflated.`;
  part("fdr").textContent = about.fdr;
  part("levels").textContent = about.funnel?.levels.map((level) => `${level} %`).join(" and ") ?? "";
  const meaning = Object.entries(about.meanings).flatMap(([name, text]) => [element("dt", name), element("dd", text)]);
  root.querySelector(".meaning").replaceChildren(...meaning);
  root.querySelector("[role=slider]")?.setAttribute("aria-valuemax", about.number);
}

// The bins, with the place of each segment and where its bins start.
function placed(bins) {
  bins.place = new Map(Array.from(bins.segment, (segment, i) => [segment, i]));
  bins.start = [0];
  for (const number of bins.number) bins.start.push(bins.start.at(-1) + number);
  return bins;
}

// Whether what is behind an element is dark, whatever page it is in.
function isDark(behind) {
  for (; behind; behind = behind.parentElement) {
    const [r, g, b, alpha = 1] = getComputedStyle(behind).backgroundColor.match(/[\d.]+/g)?.map(Number) ?? [0, 0, 0, 0];
    if (alpha > 0) return 0.2126 * r + 0.7152 * g + 0.0722 * b < 102;
  }
  return false;
}

// Draw again when the size, the colours of the page or the medium change.
function watch(element, draw, signal) {
  const sizes = new ResizeObserver(draw);
  sizes.observe(element);
  const attributes = new MutationObserver(draw);
  attributes.observe(document.body, { attributes: true });
  signal.addEventListener("abort", () => [sizes, attributes].forEach((observer) => observer.disconnect()));
  for (const query of ["(prefers-color-scheme: dark)", "print"]) {
    window.matchMedia(query).addEventListener("change", draw, { signal });
  }
}
