// Sizes as the driver and kubectl nodelvm write them.
const units = [[2n ** 40n, "TiB"], [2n ** 30n, "GiB"], [2n ** 20n, "MiB"], [2n ** 10n, "KiB"], [1n, "B"]];

// bytes is exact, in the largest unit in which the size is a whole number of at most four digits; else with one decimal, rounded down.
export function bytes(size) {
  const n = BigInt(Math.trunc(size ?? 0));
  for (const [unit, name] of units) if (n > 0n && n % unit === 0n && n / unit < 10000n) return `${n / unit} ${name}`;
  for (const [unit, name] of units) if (n >= unit) return `${n / unit}.${((n % unit) * 10n) / unit} ${name}`;
  return `${n} B`;
}

// short has at most one decimal, in the largest unit, rounded down.
export function short(size) {
  const n = Math.max(size ?? 0, 0);
  for (const [unit, name] of units) {
    const part = n / Number(unit);
    if (part >= 1) return `${part < 100 ? Math.floor(part * 10) / 10 : Math.floor(part)} ${name}`;
  }
  return "0 B";
}

export const count = (n) => Number(n).toLocaleString("en");

// plural writes "1 node", "2 nodes".
export const plural = (n, noun) => `${count(n)} ${noun}${n === 1 ? "" : "s"}`;

// percent is rounded down: a pool that is not full is not shown as full.
export const percent = (part, whole) => (whole > 0 ? `${Math.floor((100 * part) / whole)}%` : "–");

export const clock = (time) => new Date(time).toLocaleTimeString("en-GB");

export const date = (time) => new Date(time).toISOString().replace("T", " ").slice(0, 16) + " UTC";
