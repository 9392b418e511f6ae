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
