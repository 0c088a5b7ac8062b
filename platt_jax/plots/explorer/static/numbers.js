// Numbers as texts.

const NONE = "–";

function decimal(value, digits) {
  if (!Number.isFinite(value)) return NONE;
  const places = { minimumFractionDigits: digits, maximumFractionDigits: digits };
  return value.toLocaleString("en", places).replace("-", "−");
}

const count = (value) => decimal(value, 0);
const counted = (number, what) => `${count(number)} ${what}${number === 1 ? "" : "s"}`;
const segments = (number) => counted(number, "segment");

// With this many digits, but all of those before the point.
function short(value, digits = 3) {
  if (!Number.isFinite(value)) return NONE;
  if (value === 0) return "0";
  const places = digits - 1 - Math.floor(Math.log10(Math.abs(value)));
  if (places > 8) return value.toExponential(digits - 1).replaceAll("-", "−");
  const rounded = Number(value.toPrecision(digits));
  const shown = { maximumFractionDigits: Math.max(places, 0) };
  return (places < 0 ? Math.round(value) : rounded).toLocaleString("en", shown).replace("-", "−");
}

function percent(share) {
  return `${short(100 * share)} %`;
}

// Its spaces do not break.
function qSaid(q) {
  return q < 0.00005 ? "q\u00a0<\u00a00.0001" : `q\u00a0=\u00a0${short(q, 2)}`;
}

function qValue(q) {
  return q < 0.00005 ? "<0.0001" : decimal(q, 4);
}
