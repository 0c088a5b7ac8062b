// Pointer and keyboard on the funnel: what is hovered, selected and brushed, drawn above it.

const NOBODY = -1;
const REACH = { mouse: 12, pen: 16, touch: 24 }; // how near to a segment a pointer must be
const SMALLEST_BRUSH = 6; // in pixels; less is a click
const STEPS = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1, PageDown: 10, PageUp: -10 };

class Pointing {
  // `tell` has select(segment), step(by), region([fewest, most expected, lowest, highest ratio]), describe(segment).
  constructor(funnel, tell, signal) {
    this.funnel = funnel;
    this.tell = tell;
    this.canvas = funnel.above;
    this.tip = funnel.element.querySelector(".tip");
    this.selected = this.hovered = NOBODY;
    this.region = null;
    const listen = (kind, react) => this.canvas.addEventListener(kind, react.bind(this), { signal });
    listen("pointerdown", this.press);
    listen("pointermove", this.move);
    listen("pointerup", this.release);
    listen("pointercancel", () => this.drag());
    listen("pointerleave", () => this.hover(NOBODY));
    listen("keydown", this.key);
  }

  at(event) {
    const box = this.canvas.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  }

  // The segment shown that is nearest to a place, if it is near enough.
  nearest([x, y], reach) {
    const { funnel } = this;
    const { mask } = funnel.data;
    const [u, v] = [(x - funnel.left) / funnel.wide, 1 - (y - funnel.top) / funnel.high];
    let best = reach * reach;
    let found = NOBODY;
    for (let i = 0; i < funnel.x.length; i++) {
      const across = (funnel.x[i] - u) * funnel.wide;
      const up = (funnel.y[i] - v) * funnel.high;
      const far = across * across + up * up;
      if (far < best && (!mask || mask[i])) [best, found] = [far, i];
    }
    return found;
  }

  press(event) {
    if (event.button !== 0) return;
    this.start = this.at(event);
    this.canvas.setPointerCapture(event.pointerId);
  }

  move(event) {
    const place = this.at(event);
    // A finger that moves scrolls the page.
    if (this.start && event.pointerType !== "touch") this.drag(place);
    else this.hover(this.nearest(place, REACH[event.pointerType] ?? REACH.mouse));
  }

  drag(place) {
    const far = place && Math.max(...place.map((x, i) => Math.abs(x - this.start[i])));
    this.dragged = far >= SMALLEST_BRUSH ? [this.start, place] : null;
    if (!place) this.start = null;
    if (this.dragged) this.hover(NOBODY);
    this.draw();
  }

  release(event) {
    const { dragged } = this;
    this.start = this.dragged = null;
    if (dragged) {
      this.tell.region(this.toRegion(dragged));
      return;
    }
    const found = this.nearest(this.at(event), REACH[event.pointerType] ?? REACH.mouse);
    if (found !== NOBODY) this.tell.select(found);
    else if (this.region) this.tell.region(null);
    this.draw();
  }

  key(event) {
    const by = STEPS[event.key] ?? { Home: -Infinity, End: Infinity }[event.key];
    if (by !== undefined) this.tell.step(by);
    else if (event.key === "Escape") this.tell.region(null);
    else return;
    event.preventDefault();
  }

  // Ends of a rectangle beyond the axes are null: there a region has no limit.
  toRegion(corners) {
    const { funnel } = this;
    const ends = [0, 1].map((i) => corners.map((corner) => corner[i]).sort((a, b) => a - b));
    const [u, v] = [
      ends[0].map((x) => (x - funnel.left) / funnel.wide),
      ends[1].map((y) => 1 - (y - funnel.top) / funnel.high).reverse(),
    ];
    const expected = (place) => Number(funnel.scale.expected(place).toPrecision(3));
    const ratio = (place) => Number(funnel.scale.ratio(place).toPrecision(3));
    return [
      u[0] <= 0 ? null : expected(u[0]),
      u[1] >= 1 ? null : expected(u[1]),
      v[0] <= funnel.scale.bottom ? null : ratio(v[0]),
      v[1] >= 1 ? null : ratio(v[1]),
    ];
  }

  hover(segment) {
    if (segment === this.hovered) return;
    this.hovered = segment;
    this.draw();
  }

  select(segment) {
    this.selected = segment;
    this.draw();
  }

  draw() {
    const { funnel } = this;
    const pen = funnel.pen(this.canvas);
    if (this.dragged) this.drawBox(pen, ...this.dragged.flat());
    else if (this.region) this.drawRegion(pen);
    for (const [segment, color, wide] of [[this.selected, "ink", 2.5], [this.hovered, "accent", 2]]) {
      if (segment === NOBODY || funnel.x[segment] !== funnel.x[segment]) continue;
      pen.beginPath();
      pen.arc(funnel.across(segment), funnel.down(segment), 8, 0, 2 * Math.PI);
      pen.strokeStyle = funnel.color(color);
      pen.lineWidth = wide;
      pen.stroke();
    }
    this.canvas.style.cursor = this.hovered === NOBODY ? "crosshair" : "pointer";
    this.showTip();
  }

  drawRegion(pen) {
    const { left, top, wide, high, scale } = this.funnel;
    const [fewest, most, lowest, highest] = this.region;
    const within = (x) => Math.min(Math.max(x, 0), 1);
    const [u, v] = [
      [fewest === null ? 0 : within(scale.x(fewest)), most === null ? 1 : within(scale.x(most))],
      [lowest === null ? 0 : scale.y(lowest), highest === null ? 1 : scale.y(highest)],
    ];
    this.drawBox(pen, left + u[0] * wide, top + (1 - v[0]) * high, left + u[1] * wide, top + (1 - v[1]) * high);
  }

  drawBox(pen, fromX, fromY, toX, toY) {
    pen.strokeStyle = pen.fillStyle = this.funnel.color("accent");
    pen.lineWidth = 1.5;
    pen.globalAlpha = 0.12;
    pen.fillRect(fromX, fromY, toX - fromX, toY - fromY);
    pen.globalAlpha = 1;
    pen.strokeRect(fromX, fromY, toX - fromX, toY - fromY);
  }

  showTip() {
    const { tip, funnel, hovered } = this;
    tip.hidden = hovered === NOBODY || funnel.x[hovered] !== funnel.x[hovered];
    if (tip.hidden) return;
    tip.replaceChildren(...this.tell.describe(hovered));
    const [x, y] = [funnel.across(hovered), funnel.down(hovered)];
    const widest = this.canvas.clientWidth;
    tip.style.left = `${Math.max(Math.min(x + 14, widest - tip.offsetWidth - 4), 4)}px`;
    tip.style.top = `${y > tip.offsetHeight + 20 ? y - tip.offsetHeight - 12 : y + 14}px`;
  }
}
