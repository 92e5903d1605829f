// The parts of one bar of the map: pure functions of the model.
import { count, percent, short } from "./units.js";

// segmentsOf lays out a bar; left and width are percents of it. It is computed when the bar is first seen.
export function segmentsOf(bar) {
  bar.segments ??= place({ disk: diskParts, pool: poolParts, pending: itemParts, unread: itemParts }[bar.kind](bar));
  return bar.segments;
}

function place({ parts, whole }) {
  let at = 0;
  return parts.map((part) => {
    const start = part.start ?? at;
    at = start + part.length;
    return { ...part, left: (100 * start) / whole, width: (100 * part.length) / whole };
  });
}

function diskParts({ disk, group, node }) {
  const whole = Math.max(disk.extents, 1);
  const parts = disk.ranges.map(([start, length, index]) => ({
    start, length, extents: true, item: node.items[index] ?? null,
    kind: node.items[index]?.kind ?? (index === -1 ? "free" : "other"), size: length * group.extentSize,
  }));
  if (parts.length === 0) parts.push({ start: 0, length: whole, item: null, kind: "other", size: 0 });
  return { parts, whole };
}

// poolParts shows a volume as wide as what it has allocated of the pool, or, where that is unknown, as an equal share of the rest.
function poolParts({ pool, node }) {
  const whole = Math.max(pool.size, 1);
  const items = pool.items.map((i) => node.items[i]).filter(Boolean);
  const volumes = items.filter((i) => i.used != null);
  const known = volumes.reduce((sum, i) => sum + Math.max(i.used, 0), 0);
  const unknown = items.length - volumes.length;
  const rest = Math.max(pool.used - known, 0);
  const least = unknown ? Math.max(rest / unknown, whole / 100) : 0;
  const parts = items.map((item) => ({ item, kind: item.kind, length: item.used != null ? Math.max(item.used, 0) : least, unknown: item.used == null, size: item.used ?? 0 }));
  const sum = parts.reduce((all, p) => all + p.length, 0);
  if (sum < whole) parts.push({ item: null, kind: "free", length: whole - sum, size: Math.max(pool.size - pool.used, 0) });
  return { parts, whole: Math.max(whole, sum) };
}

function itemParts({ node, kind }) {
  const items = node.items.filter((i) => i.kind === kind);
  const parts = items.map((item) => ({ item, kind, length: 1, size: item.size }));
  if (parts.length === 0) parts.push({ item: null, kind: "nothing", length: 1, size: 0 });
  return { parts, whole: parts.length };
}

// stateOf names the first condition, or else the state.
export const stateOf = (item) => (item.health === "ok" ? item.state : (item.messages?.[0]?.match(/^\w+(?=: )/)?.[0] ?? item.state));

// nameOfDisk is the path of a disk, or of a missing one the path that it had.
export const nameOfDisk = (disk) => disk.device || (disk.lastPath ? `was ${disk.lastPath}` : `PV ${disk.uuid}`);

export const nameOf = (item) => item.claim || item.lv || item.id;

const kindWords = { wipe: "deleted volume, being wiped", pool: "thin pool", other: "logical volume, not managed", pending: "volume, not on a disk", unread: "volume, not read: its node does not answer" };

export const kindWord = (kind) => kindWords[kind] ?? kind;

// sizeOf is the size of the segment itself: a volume can have several.
export const sizeOf = (part) => short(part.size || part.item.size);

// labelOf is what a screen reader says of a segment.
export function labelOf(bar, part) {
  const where = bar.kind === "disk" ? `, ${rangeWords(part)} of ${bar.label}` : `, ${bar.label}`;
  if (part.kind === "nothing") return bar.kind === "unread" ? "not read: the node does not answer" : "no volume group";
  if (!part.item) return part.kind === "free" ? `free, ${short(part.size)}${where}` : `unknown use, ${short(part.size)}${where}`;
  const share = part.unknown ? ", its part of the pool is not known" : "";
  const own = sizeOf(part), whole = short(part.item.size);
  return `${nameOf(part.item)}, ${own === whole ? whole : `${own} of ${whole}`}, ${kindWord(part.item.kind)}, ${stateOf(part.item)}${where}${share}`;
}

export const rangeWords = (part) => (part.extents ? `extents ${count(part.start)}–${count(part.start + part.length - 1)}` : "");

// noteOf stands at the right of a bar.
export function noteOf(bar) {
  if (bar.kind === "pool") return `${percent(bar.pool.used, bar.pool.size)} of ${short(bar.pool.size)}`;
  if (bar.kind === "pending" || bar.kind === "unread") return "";
  const free = bar.disk.ranges.reduce((sum, [, n, item]) => (item === -1 ? sum + n : sum), 0) * bar.group.extentSize;
  return bar.disk.state === "ok" ? `${short(free)} free` : bar.disk.state;
}
