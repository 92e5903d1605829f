// The page's copy of the model (Go package dashboard), and what changed in it since the page was opened.
import { begin, dataURL } from "./session.js";
import { nameOfDisk } from "./segments.js";
import { compareNames } from "./select.js";
import { bytes } from "./units.js";

// refusal is why the dashboard serves this page no data.
export const store = { nodes: new Map(), hello: {}, status: { known: 0, read: 0 }, live: false, refusal: "", history: [], version: 0 };

const historyLimit = 2000;
const listeners = new Set();
let waiting = false;

export function subscribe(listener) {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

// changed tells the listeners at most once for each picture.
function changed() {
  store.version++;
  if (waiting) return;
  waiting = true;
  requestAnimationFrame(() => {
    waiting = false;
    for (const listener of listeners) listener();
  });
}

export async function connect() {
  await begin();
  const url = dataURL("/api/stream");
  const stream = new EventSource(url);
  const on = (name, handle) =>
    stream.addEventListener(name, (e) => {
      handle(JSON.parse(e.data));
      changed();
    });
  on("reset", (hello) => {
    Object.assign(store, { hello, live: true, status: { known: 0, read: 0 } });
    store.earlier = new Set(store.nodes.keys()); // of an earlier connection: they stay until they are sent again
  });
  on("nodes", (nodes) => nodes.forEach(put));
  on("gone", (names) => names.forEach(remove));
  on("status", (status) => {
    store.status = status;
    if (status.time && store.earlier?.size) for (const name of store.earlier) remove(name);
  });
  stream.onerror = async () => {
    store.live = false;
    changed();
    if (stream.readyState !== EventSource.CLOSED) return; // it connects again
    const reply = await fetch(url).catch(() => null);
    store.refusal = reply && !reply.ok ? await reply.text() : "";
    await reply?.body?.cancel().catch(() => null);
    changed();
  };
}

function put(node) {
  const before = store.nodes.get(node.name);
  store.earlier?.delete(node.name);
  prepare(node);
  if (before) compare(before, node);
  store.nodes.set(node.name, node);
}

function remove(name) {
  store.earlier?.delete(name);
  if (store.nodes.delete(name)) note(name, "", "The node is no longer listed.");
}

// prepare adds what search and layout need.
function prepare(node) {
  const groups = node.groups.flatMap((g) => [g.name, ...(g.tags ?? []), ...g.disks.flatMap((d) => [d.device, d.model, d.serial])]);
  for (const group of node.groups) group.disks.sort((a, b) => compareNames(nameOfDisk(a), nameOfDisk(b)));
  node.hay = [node.name, node.version, ...groups].join("\n").toLowerCase();
  node.capacity = { size: 0, free: 0, wipe: node.wipeBacklog ?? 0 };
  for (const g of node.groups) {
    node.capacity.size += g.size;
    node.capacity.free += g.free;
  }
  node.items.forEach((item) => {
    item.node = node;
    item.key = `${node.name}\n${item.id}`;
    item.hay = [item.claim, item.pv, item.lv, item.group, item.class, item.kind, item.layout, item.state, ...(item.pods ?? [])].join("\n").toLowerCase();
  });
  node.bars = barsOf(node);
  node.messages = [...(node.problems ?? []), ...node.groups.flatMap((g) => g.messages ?? [])];
}

// barsOf lists what the map draws of a node: each disk, each thin pool's content, and what has no place on a disk.
function barsOf(node) {
  const bars = [];
  for (const group of node.groups) {
    for (const disk of group.disks) bars.push({ kind: "disk", node, group, disk, label: nameOfDisk(disk).replace("/dev/", ""), share: shareOf(disk, group, node) });
    for (const pool of group.pools ?? []) bars.push({ kind: "pool", node, group, pool, label: node.items[pool.item]?.lv ?? "thin pool" });
  }
  const silent = node.health === "unknown" && node.groups.length === 0;
  for (const [kind, label] of [["unread", "not read"], ["pending", "not on a disk"]]) {
    if (node.items.some((item) => item.kind === kind)) bars.push({ kind, node, label });
  }
  if (bars.length === 0) bars.push({ kind: silent ? "unread" : "pending", node, label: silent ? "not read" : "no disk" });
  return bars;
}

// shareOf is a disk's part of the width of the node's largest disk; a small one stays visible.
function shareOf(disk, group, node) {
  const largest = Math.max(...node.groups.flatMap((g) => g.disks.map((d) => d.extents * g.extentSize)), 1);
  return Math.max((disk.extents * group.extentSize) / largest, 0.1);
}

function note(node, id, text) {
  store.history.push({ time: Date.now(), node, id, text });
  if (store.history.length > historyLimit) store.history.splice(0, store.history.length - historyLimit);
}

// compare notes what changed between two answers of a node.
function compare(before, after) {
  if (before.health !== after.health) note(after.name, "", `Node: ${before.health} → ${after.health}.`);
  const old = new Map(before.items.map((item) => [item.id, item]));
  for (const item of after.items) {
    const was = old.get(item.id);
    old.delete(item.id);
    if (!was) {
      note(after.name, item.id, `${item.claim || item.lv || item.id}: new, ${bytes(item.size)}.`);
      continue;
    }
    const name = item.claim || item.lv || item.id;
    for (const field of ["kind", "state", "health", "phase", "claim"]) {
      if (was[field] !== item[field]) note(after.name, item.id, `${name}: ${field} ${was[field] || "none"} → ${item[field] || "none"}.`);
    }
    if (was.size !== item.size) note(after.name, item.id, `${name}: size ${bytes(was.size)} → ${bytes(item.size)}.`);
    if (Math.abs((was.used ?? 0) - (item.used ?? 0)) * 100 >= item.size) note(after.name, item.id, `${name}: used ${bytes(was.used)} → ${bytes(item.used)}.`);
    const pods = [was, item].map((i) => (i.pods ?? []).join(", "));
    if (pods[0] !== pods[1]) note(after.name, item.id, `${name}: pods ${pods[0] || "none"} → ${pods[1] || "none"}.`);
  }
  for (const item of old.values()) note(after.name, item.id, `${item.claim || item.lv || item.id}: gone.`);
}
