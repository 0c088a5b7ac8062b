// The funnel: observed over expected positives of segments against the expected ones.

const MOST_DOTS = 20000; // more are drawn as counts by cell
const MOST_NAMES = 8;
// How a segment is drawn; later ones are above earlier ones.
const [FAINT, WITHIN, OFF] = [0, 1, 2];

class Funnel {
  // `data` has about, columns, names once they are read, and a mask of the segments shown, if not all.
  constructor(element, data) {
    [this.below, this.above] = element.querySelectorAll("canvas");
    this.element = element;
    this.data = data;
    this.scale = funnelScale(data.about.funnel);
    this.place();
  }

  place() {
    const { expected, ratio } = this.data.columns;
    this.x = new Float32Array(expected.length).fill(NaN);
    this.y = new Float32Array(expected.length);
    this.beyond = 0;
    for (let i = 0; i < expected.length; i++) {
      if (!(expected[i] > 0 && ratio[i] < Infinity)) continue;
      this.x[i] = this.scale.x(expected[i]);
      this.y[i] = this.scale.y(ratio[i]);
      this.beyond += this.scale.isBeyond(ratio[i]);
    }
  }

  measure() {
    const { width, height } = this.element.getBoundingClientRect();
    this.left = 46;
    this.top = 12;
    this.wide = Math.max(width - this.left - 10, 10);
    this.high = Math.max(height - this.top - 40, 10);
    this.dense = window.devicePixelRatio || 1;
    for (const canvas of [this.below, this.above]) {
      [canvas.width, canvas.height] = [width, height].map((x) => Math.round(x * this.dense));
    }
    const style = getComputedStyle(this.element);
    this.font = `12px ${style.fontFamily}`;
    this.color = (name) => style.getPropertyValue(`--${name}`).trim();
  }

  across(i) {
    return this.left + this.wide * this.x[i];
  }

  down(i) {
    return this.top + this.high * (1 - this.y[i]);
  }

  draw() {
    this.measure();
    const pen = this.pen(this.below);
    this.drawLimits(pen);
    this.drawAxes(pen);
    this.drawSegments(pen);
    if (this.data.names) this.drawNames(pen);
  }

  pen(canvas) {
    const pen = canvas.getContext("2d");
    pen.setTransform(this.dense, 0, 0, this.dense, 0, 0);
    pen.clearRect(0, 0, canvas.width, canvas.height);
    pen.font = this.font;
    return pen;
  }

  drawLimits(pen) {
    const [expected, ...ends] = this.data.about.funnel.limits;
    const x = (positives) => this.left + this.wide * this.scale.x(positives);
    // Where the lower limit is null, no positives at all are within it.
    const y = (ratio) => this.top + this.high * (1 - (ratio ? this.scale.y(ratio) : 0));
    pen.save();
    pen.beginPath();
    pen.rect(this.left, this.top, this.wide, this.high);
    pen.clip();
    pen.fillStyle = this.color("band");
    for (const [low, high] of [ends.slice(2), ends.slice(0, 2)]) {
      pen.beginPath();
      expected.forEach((positives, i) => pen.lineTo(x(positives), y(high[i])));
      for (let i = expected.length - 1; i >= 0; i--) pen.lineTo(x(expected[i]), y(low[i]));
      pen.fill();
    }
    pen.restore();
    pen.strokeStyle = this.color("centre");
    pen.lineWidth = 1.5;
    const height = Math.round(y(1));
    this.line(pen, this.left, height, this.left + this.wide, height);
  }

  line(pen, ...[fromX, fromY, toX, toY]) {
    pen.beginPath();
    pen.moveTo(fromX, fromY);
    pen.lineTo(toX, toY);
    pen.stroke();
  }

  drawAxes(pen) {
    const { scale, left, top, wide, high } = this;
    const { across, up, zero } = this.data.about.funnel;
    const bottom = top + high;
    pen.fillStyle = this.color("muted");
    pen.strokeStyle = this.color("line");
    pen.lineWidth = 1;
    this.line(pen, left, bottom, left + wide, bottom);
    pen.textBaseline = "middle";
    pen.textAlign = "right";
    const ratios = logTicks(...up, high / 34);
    for (const ratio of zero ? [0, ...ratios] : ratios) {
      const height = top + high * (1 - scale.y(ratio));
      pen.fillText(ratio ? short(ratio) : "0", left - 8, height);
      this.line(pen, left - 4, height, left, height);
    }
    if (zero) this.line(pen, left, top + high * (1 - scale.bottom), left + wide, top + high * (1 - scale.bottom));
    pen.textBaseline = "top";
    pen.textAlign = "center";
    for (const expected of logTicks(...across, wide / 64)) {
      const place = left + wide * scale.x(expected);
      pen.fillText(short(expected), place, bottom + 7);
      this.line(pen, place, bottom, place, bottom + 4);
    }
    pen.textAlign = "right";
    pen.fillText("expected positives of the segment →", left + wide, bottom + 23);
  }

  drawSegments(pen) {
    const { off } = this.data.columns;
    const { mask } = this.data;
    const groups = [[], [], []];
    for (let i = 0; i < off.length; i++) {
      if (this.x[i] === this.x[i]) groups[mask && !mask[i] ? FAINT : off[i] ? OFF : WITHIN].push(i);
    }
    const colors = ["line", "dot", "off"].map(this.color);
    groups.forEach((group, kind) => {
      const drawn = group.length > MOST_DOTS ? this.drawCounts : this.drawEach;
      drawn.call(this, pen, group, colors[kind], kind);
    });
  }

  drawEach(pen, group, color, kind) {
    const few = group.length < 2000;
    const size = kind === OFF ? (few ? 4.5 : 3) : few ? 3 : 2;
    pen.fillStyle = color;
    pen.globalAlpha = kind === OFF ? 0.95 : few ? 0.55 : 0.4;
    for (const i of group) {
      pen.beginPath();
      this.outline(pen, i, size, kind === OFF);
      pen.fill();
    }
    pen.globalAlpha = 1;
  }

  // A diamond for a segment that is off, else a circle.
  outline(pen, i, size, diamond) {
    const [x, y] = [this.across(i), this.down(i)];
    if (!diamond) {
      pen.arc(x, y, size, 0, 2 * Math.PI);
      return;
    }
    pen.moveTo(x - size, y);
    pen.lineTo(x, y - size);
    pen.lineTo(x + size, y);
    pen.lineTo(x, y + size);
    pen.closePath();
  }

  // The more segments in a cell, the less transparent it is.
  drawCounts(pen, group, color) {
    const cell = 2; // in pixels
    const columns = Math.ceil(this.wide / cell) + 1;
    const lines = Math.ceil(this.high / cell) + 1;
    const counts = new Uint32Array(columns * lines);
    let most = 0;
    for (const i of group) {
      const line = Math.floor((this.down(i) - this.top) / cell);
      const where = line * columns + Math.floor((this.across(i) - this.left) / cell);
      most = Math.max(most, ++counts[where]);
    }
    const picture = new OffscreenCanvas(columns, lines);
    const brush = picture.getContext("2d");
    brush.fillStyle = color;
    brush.fillRect(0, 0, columns, lines);
    const pixels = brush.getImageData(0, 0, columns, lines);
    for (let i = 0; i < counts.length; i++) {
      const share = counts[i] && 0.4 + 0.6 * (Math.log(counts[i]) / (Math.log(most) || 1));
      pixels.data[4 * i + 3] = 255 * share;
    }
    brush.putImageData(pixels, 0, 0);
    pen.imageSmoothingEnabled = false;
    pen.drawImage(picture, this.left, this.top, columns * cell, lines * cell);
  }

  // Names of the first segments that are off, where they do not overlap.
  drawNames(pen) {
    const { columns, names, mask } = this.data;
    const taken = [];
    pen.textBaseline = "middle";
    pen.textAlign = "left";
    pen.lineWidth = 3;
    pen.strokeStyle = this.color("paper");
    pen.fillStyle = this.color("ink");
    for (let i = 0, tried = 0; i < names.length && tried < MOST_NAMES; i++) {
      if (!columns.off[i] || (mask && !mask[i]) || this.x[i] !== this.x[i]) continue;
      tried++;
      const text = names[i].length > 18 ? `${names[i].slice(0, 17)}…` : names[i];
      const width = pen.measureText(text).width;
      for (const x of [this.across(i) + 9, this.across(i) - 9 - width]) {
        const box = [x, x + width, this.down(i) - 8, this.down(i) + 8];
        const inside = x > this.left && box[1] < this.left + this.wide;
        const free = taken.every((one) => box[0] > one[1] || one[0] > box[1] || box[2] > one[3] || one[2] > box[3]);
        if (!inside || !free) continue;
        taken.push(box);
        pen.strokeText(text, x, this.down(i));
        pen.fillText(text, x, this.down(i));
        break;
      }
    }
  }
}
