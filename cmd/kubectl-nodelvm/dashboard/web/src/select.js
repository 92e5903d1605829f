// What the search and the filters select: pure functions of the model.

export const kinds = [
  ["volume", "Volumes"],
  ["snapshot", "Snapshots"],
  ["pool", "Thin pools"],
  ["wipe", "Being wiped"],
  ["pending", "Not on a disk"],
  ["unread", "Not read"],
  ["other", "Not managed"],
];

export const noFilter = { query: "", health: "all", namespace: "", kind: "" };

// select returns the nodes to show, by name. hits is null where the whole node matches.
export function select(nodes, filter) {
  const terms = filter.query.toLowerCase().split(/\s+/).filter(Boolean);
  const rows = [];
  for (const node of nodes) {
    if (filter.health === "problem" && node.health === "ok") continue;
    if (filter.health === "unknown" && node.health !== "unknown") continue;
    const rest = terms.filter((term) => !node.hay.includes(term));
    if (rest.length === 0 && !filter.namespace && !filter.kind) {
      rows.push({ node, hits: null });
      continue;
    }
    const hits = new Set(node.items.filter((item) => matches(item, rest, filter)));
    if (hits.size > 0) rows.push({ node, hits });
  }
  return rows.sort((a, b) => compareNames(a.node.name, b.node.name));
}

export const compareNames = new Intl.Collator("en", { numeric: true }).compare;

function matches(item, terms, filter) {
  if (filter.kind && item.kind !== filter.kind) return false;
  if (filter.namespace && !item.claim?.startsWith(`${filter.namespace}/`)) return false;
  return terms.every((term) => item.hay.includes(term));
}

// itemsOf lists the selected items for the table. Where whole nodes match by their health, so do only the items with a problem.
export function itemsOf(rows, filter, sort) {
  const list = rows.flatMap(({ node, hits }) => (hits ? [...hits] : node.items));
  const shown = filter.health === "problem" ? list.filter((item) => item.health !== "ok") : list;
  const by = columns.find((c) => c.id === sort.by).value;
  const sign = sort.descending ? -1 : 1;
  return shown
    .map((item) => [by(item), item])
    .sort(([a], [b]) => sign * (typeof a === "number" ? a - b : compareNames(a, b)))
    .map(([, item]) => item);
}

const severity = { ok: 0, unknown: 1, warning: 2, error: 3 };

export const columns = [
  { id: "claim", title: "Claim", value: (i) => i.claim || i.lv || i.id },
  { id: "kind", title: "Kind", value: (i) => i.kind },
  { id: "node", title: "Node", value: (i) => i.node.name },
  { id: "lv", title: "Logical volume", value: (i) => (i.lv ? `${i.group}/${i.lv}` : "–") },
  { id: "layout", title: "Layout", value: (i) => i.layout || "–" },
  { id: "size", title: "Size", value: (i) => i.size },
  { id: "used", title: "Used", value: (i) => (i.used ?? -1) / Math.max(i.size, 1) },
  { id: "health", title: "State", value: (i) => severity[i.health] },
];

export function namespaces(nodes) {
  const found = new Set();
  for (const node of nodes) for (const item of node.items) if (item.claim?.includes("/")) found.add(item.claim.split("/", 1)[0]);
  return [...found].sort(compareNames);
}

export function totals(nodes) {
  const sum = { nodes: 0, problem: 0, unknown: 0, unread: 0, size: 0, free: 0, wipe: 0, volumes: 0, snapshots: 0 };
  for (const node of nodes) {
    sum.nodes++;
    if (node.health !== "ok") sum.problem++;
    if (node.health === "unknown") sum.unknown++;
    if (node.health === "unknown" && node.groups.length === 0) sum.unread++;
    sum.size += node.capacity.size;
    sum.free += node.capacity.free;
    sum.wipe += node.capacity.wipe;
    for (const item of node.items) {
      if (item.kind === "volume") sum.volumes++;
      else if (item.kind === "snapshot") sum.snapshots++;
    }
  }
  return sum;
}
