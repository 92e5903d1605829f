// The map: nodes, a bar for each disk and thin pool, a segment for each range.
import { useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { labelOf, nameOf, nameOfDisk, noteOf, segmentsOf, sizeOf } from "./segments.js";
import { store } from "./store.js";
import { short } from "./units.js";
import { useVirtual } from "./virtual.js";

const head = 30, problem = 38, gap = 14;
const dense = 24, twoLines = 38, roomy = 46; // heights of a bar

const heightOf = (bar) => ({ node }) => head + node.bars.length * bar + (node.messages.length ? problem : 0) + gap;

const sum = (rows, bar) => rows.reduce((all, row) => all + heightOf(bar)(row), 0);

// barHeight lets few nodes fill the window.
function barHeight(rows, height) {
  const bars = rows.length < 30 ? sum(rows, 1) - sum(rows, 0) : 0;
  return bars ? Math.min(roomy, Math.max(dense, Math.floor((height - sum(rows, 0)) / bars))) : dense;
}

export function Map({ rows, selected, open }) {
  const [room, setRoom] = useState({ width: 1000, height: 0 });
  const bar = useMemo(() => barHeight(rows, room.height), [rows, room]);
  const heights = useMemo(() => rows.map(heightOf(bar)), [rows, bar]);
  const list = useVirtual(heights, setRoom);
  const [at, setAt] = useState({ n: 0, b: 0, s: 0 });
  const wanted = useRef(false); // the focus follows at
  const go = (next) => {
    wanted.current = true;
    setAt(next);
    list.reveal(next.n);
  };
  useLayoutEffect(() => {
    if (!wanted.current) return;
    const cell = list.element.current.querySelector(`[data-at="${at.n}.${at.b}.${at.s}"]`);
    if (cell) {
      wanted.current = false;
      cell.focus({ preventScroll: true });
    }
  });
  const visible = rows.slice(list.first, list.last);
  const home = at.n >= list.first && at.n < list.last && exists(rows, at) ? at : { n: list.first, b: 0, s: 0 };
  const barsBefore = useMemo(() => before(rows), [rows]);
  return (
    <div class={`scroll map ${bar >= twoLines ? "roomy" : ""}`} style={{ "--bar": `${bar}px` }} role="grid" aria-label="Disks by node" aria-rowcount={barsBefore[rows.length] || 1} ref={list.element} onScroll={list.onScroll}
      onKeyDown={(e) => steer(e, rows, home, go, open)} tabIndex={rows.length ? -1 : 0}>
      <div class="inner" role="none" style={{ height: `${list.total}px` }}>
        {visible.map((row, i) => (
          <NodeRow key={row.node.name} row={row} n={list.first + i} top={list.offsets[list.first + i]} row0={barsBefore[list.first + i]} home={home}
            selected={selected} open={open} setAt={setAt} width={room.width} />
        ))}
      </div>
      {rows.length === 0 && <div role="row"><p role="gridcell" class="none">{store.nodes.size > 0 ? "No node matches." : store.status.time ? "No node has a pod of the driver." : "Reading the nodes …"}</p></div>}
    </div>
  );
}

// before counts the grid's rows before each node: its heading and its bars.
function before(rows) {
  const sums = [0];
  for (const { node } of rows) sums.push(sums[sums.length - 1] + node.bars.length + 1);
  return sums;
}

const exists = (rows, { n, b, s }) => n < rows.length && b < rows[n].node.bars.length && s < segmentsOf(rows[n].node.bars[b]).length;

function NodeRow({ row, n, top, row0, home, selected, open, setAt, width }) {
  const { node, hits } = row;
  const { size, free } = node.capacity;
  return (
    <div class={`node ${node.health}`} role="rowgroup" aria-label={node.name} style={{ transform: `translateY(${top}px)` }}>
      <div class="nodehead" role="row" aria-rowindex={row0 + 1}>
        <span role="rowheader"><button class="nodename" tabIndex={-1} onClick={() => open({ node: node.name })} title="Details of the node"><Mark health={node.health} /> <b>{node.name}</b></button></span>
        <span role="gridcell" class="quiet">{node.groups.map((g) => g.name).join(", ")}</span>
        <span role="gridcell" class="figures">{size > 0 && <><b>{short(free)}</b> free of {short(size)}</>}</span>
      </div>
      {node.messages.length > 0 && (
        <div class={`problem ${node.health}`} role="row">
          <span role="gridcell" title={node.messages.join("\n")} onClick={() => open({ node: node.name })}>{node.stale && "Last answer shown. "}{node.messages[0]}{node.messages.length > 1 && ` (${node.messages.length - 1} more)`}</span>
        </div>
      )}
      {node.bars.map((b, j) => (
        <Bar key={j} bar={b} n={n} b={j} row={row0 + 2 + j} hits={hits} home={home} selected={selected} open={open} setAt={setAt} width={width} />
      ))}
    </div>
  );
}

const besides = 320; // pixels of a row that are not the bar

function Bar({ bar, n, b, row, hits, home, selected, open, setAt, width }) {
  return (
    <div class={`bar ${bar.kind} ${bar.disk?.state ?? ""} ${bar.node.stale ? "stale" : ""}`} role="row" aria-rowindex={row}>
      <span role="rowheader" class="barlabel" title={bar.disk ? nameOfDisk(bar.disk) : bar.label}>{bar.kind === "pool" && <span class="quiet">thin </span>}{bar.label}</span>
      <span class="track" role="none" style={bar.share ? { width: `${bar.share * 100}%` } : undefined}>
        {segmentsOf(bar).map((part, s) => {
          const dim = hits && !hits.has(part.item);
          const chosen = selected && part.item ? selected.key === part.item.key : selected?.part === part;
          const label = labelOf(bar, part);
          return (
            <span key={s} role="gridcell" data-at={`${n}.${b}.${s}`} tabIndex={home.n === n && home.b === b && home.s === s ? 0 : -1} title={label} aria-label={label}
              aria-selected={chosen ? "true" : "false"}
              class={`part ${part.kind} ${part.item?.health ?? ""} ${dim ? "dim" : ""}`} style={{ left: `${part.left}%`, width: `calc(${part.width}% - 1px)` }}
              onFocus={() => setAt({ n, b, s })} onClick={() => open({ key: part.item?.key, node: bar.node.name, bar, part })}>
              {(part.width * (bar.share ?? 1) * (width - besides)) / 100 > 60 && part.item && !dim && (
                <span class="name">{nameOf(part.item).replace(/^[^/]*\//, "")}{" "}<small>{sizeOf(part)}</small></span>
              )}
            </span>
          );
        })}
      </span>
      <span role="gridcell" class="barnote">{noteOf(bar)}</span>
    </div>
  );
}

const signs = { ok: "●", warning: "▲", error: "■", unknown: "○" };

// Mark shows a health by shape and colour.
export const Mark = ({ health }) => <span class={`mark ${health}`} role="img" aria-label={health} title={health}>{signs[health]}</span>;

// steer moves the focus: left and right within a bar, up and down to the segment at the same place of the next bar.
function steer(e, rows, at, go, open) {
  if (rows.length === 0 || e.ctrlKey || e.metaKey || e.altKey) return;
  const bars = rows[at.n].node.bars;
  const parts = segmentsOf(bars[at.b]);
  const under = (n, b) => {
    const middle = parts[at.s].left + parts[at.s].width / 2;
    const next = segmentsOf(rows[n].node.bars[b]);
    const s = next.findIndex((p) => p.left + p.width > middle);
    return { n, b, s: s < 0 ? next.length - 1 : s };
  };
  const moves = {
    ArrowRight: () => ({ ...at, s: Math.min(at.s + 1, parts.length - 1) }),
    ArrowLeft: () => ({ ...at, s: Math.max(at.s - 1, 0) }),
    ArrowDown: () => (at.b + 1 < bars.length ? under(at.n, at.b + 1) : at.n + 1 < rows.length ? under(at.n + 1, 0) : at),
    ArrowUp: () => (at.b > 0 ? under(at.n, at.b - 1) : at.n > 0 ? under(at.n - 1, rows[at.n - 1].node.bars.length - 1) : at),
    PageDown: () => under(Math.min(at.n + 5, rows.length - 1), 0),
    PageUp: () => under(Math.max(at.n - 5, 0), 0),
    Home: () => (e.shiftKey ? { n: 0, b: 0, s: 0 } : { ...at, s: 0 }),
    End: () => (e.shiftKey ? under(rows.length - 1, 0) : { ...at, s: parts.length - 1 }),
  };
  if (moves[e.key]) {
    e.preventDefault();
    go(moves[e.key]());
  } else if (e.key === "Enter" || e.key === " ") {
    e.preventDefault();
    if (e.shiftKey) open({ node: rows[at.n].node.name });
    else e.target.closest("[data-at]")?.click();
  }
}
