// Figures with their units.

/** `1.5 ms`, of nanoseconds. */
export function time(ns: number): string {
  const sign = ns < 0 ? "−" : "";
  const n = Math.abs(ns);
  if (n < 1e3) return `${sign}${Math.round(n)} ns`;
  if (n < 1e6) return `${sign}${digits(n / 1e3)} µs`;
  if (n < 1e9) return `${sign}${digits(n / 1e6)} ms`;
  return `${sign}${digits(n / 1e9)} s`;
}

/** `64 KiB`. */
export function bytes(n: number): string {
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
  let unit = 0;
  while (n >= 1024 && unit + 1 < units.length) {
    n /= 1024;
    unit += 1;
  }
  return `${unit === 0 ? n : digits(n)} ${units[unit]}`;
}

/** Marks of an axis `step` apart, up to `most`: one unit, and as many digits as tell them apart. */
export function timeMarks(at: number[], step: number, most: number): string[] {
  const [unit, name] = most < 1e3 ? [1, "ns"] : most < 1e6 ? [1e3, "µs"] : most < 1e9 ? [1e6, "ms"] : [1e9, "s"];
  return at.map((t) => `${(t / unit).toFixed(places(step / unit))} ${name}`);
}

/** The same of bytes. */
export function byteMarks(at: number[], step: number, most: number): string[] {
  let unit = 0;
  while (most / 1024 ** unit >= 1024 && unit < 6) unit += 1;
  const name = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"][unit];
  return at.map((n) => `${(n / 1024 ** unit).toFixed(places(step / 1024 ** unit))} ${name}`);
}

/** Digits behind the point that tell multiples of a step apart. */
function places(step: number): number {
  return Math.max(0, Math.min(9, Math.ceil(-Math.log10(step) - 1e-9)));
}

/** `1,234`. */
export function count(n: number): string {
  return n.toLocaleString("en-US");
}

/** `12 %`, of 0 to 1. */
export function percent(share: number): string {
  return `${(share * 100).toFixed(share < 0.1 ? 1 : 0)} %`;
}

/** A word of a command, as a shell takes it. */
export function word(text: string): string {
  return /^[\w./:@%+,=-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`;
}

function digits(n: number): string {
  return n < 10 ? n.toFixed(2) : n < 100 ? n.toFixed(1) : n.toFixed(0);
}
