// Places on axes, and round numbers to write beside them.

// At most this many round numbers from low to high on a logarithmic axis.
function logTicks(low, high, most) {
  for (const [digits, every] of [[[1, 2, 5], 1], [[1, 3], 1], [[1], 1], [[1], 2], [[1], 3]]) {
    const ticks = [];
    for (let power = Math.floor(Math.log10(low)); power <= Math.log10(high); power++) {
      if (power % every === 0) ticks.push(...digits.map((digit) => digit * 10 ** power));
    }
    const inside = ticks.filter((tick) => tick >= low && tick <= high);
    if (inside.length <= most) return inside.length < 3 ? linearTicks(low, high, most) : inside;
  }
  return [low, high];
}

function linearTicks(low, high, most) {
  const rough = (high - low) / Math.max(most, 1);
  const size = 10 ** Math.floor(Math.log10(rough));
  const step = size * ([1, 2, 2.5, 5].find((round) => round * size >= rough) ?? 10);
  const ticks = [];
  for (let i = Math.ceil(low / step); i * step <= high + 1e-9 * step; i++) ticks.push(i * step);
  return ticks;
}

const ZERO_LANE = 0.07; // share of the axis for segments without positives

// From 0 to 1 along each axis of the funnel. Ratios beyond the axis are at its ends.
function funnelScale({ across, up, zero }) {
  const bottom = zero ? ZERO_LANE : 0;
  const [left, right, low, high] = [...across, ...up].map(Math.log);
  const x = (expected) => (Math.log(expected) - left) / (right - left);
  const inside = (ratio) => (Math.log(ratio) - low) / (high - low);
  const y = (ratio) =>
    ratio === 0 ? ZERO_LANE / 2 : bottom + (1 - bottom) * Math.min(Math.max(inside(ratio), 0), 1);
  return {
    x, y, bottom,
    expected: (place) => Math.exp(left + place * (right - left)),
    ratio: (place) => Math.exp(low + ((place - bottom) / (1 - bottom)) * (high - low)),
    isBeyond: (ratio) => ratio > 0 && (inside(ratio) < 0 || inside(ratio) > 1),
  };
}
