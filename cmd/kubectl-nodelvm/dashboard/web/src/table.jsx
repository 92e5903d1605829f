// The same items as a table, sorted by any column.
import { useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { Mark } from "./map.jsx";
import { kindWord, nameOf, stateOf } from "./segments.js";
import { columns, itemsOf } from "./select.js";
import { bytes, percent } from "./units.js";
import { useVirtual } from "./virtual.js";

const height = 28;

const cells = {
  claim: (i) => nameOf(i),
  kind: (i) => (i.kind === "wipe" ? "wipe" : kindWord(i.kind).split(",")[0]),
  node: (i) => i.node.name,
  lv: (i) => (i.lv ? `${i.group}/${i.lv}` : "–"),
  layout: (i) => i.layout || "–",
  size: (i) => bytes(i.size),
  used: (i) => (i.used == null ? "–" : percent(i.used, i.size)),
  health: (i) => <><Mark health={i.health} /> {stateOf(i)}</>,
};

export function Table({ rows, filter, selected, open }) {
  const [sort, setSort] = useState({ by: "claim", descending: false });
  const items = useMemo(() => itemsOf(rows, filter, sort), [rows, filter, sort]);
  const heights = useMemo(() => items.map(() => height), [items]);
  const list = useVirtual(heights);
  const [at, setAt] = useState(0);
  const wanted = useRef(false);
  useLayoutEffect(() => {
    const row = wanted.current && list.element.current.querySelector(`[data-row="${at}"]`);
    if (row) {
      wanted.current = false;
      row.focus({ preventScroll: true });
    }
  });
  const home = at >= list.first && at < list.last ? at : list.first;
  const onKeyDown = (e) => {
    const step = { ArrowDown: 1, ArrowUp: -1, PageDown: 20, PageUp: -20, Home: -items.length, End: items.length }[e.key];
    if (step && items.length) {
      e.preventDefault();
      const next = Math.min(Math.max(home + step, 0), items.length - 1);
      wanted.current = true;
      setAt(next);
      list.reveal(next);
    } else if ((e.key === "Enter" || e.key === " ") && e.target.dataset.row) {
      e.preventDefault();
      e.target.click();
    }
  };
  return (
    <div class="table" role="grid" aria-label="Volumes, snapshots and pools" aria-rowcount={items.length + 1} aria-colcount={columns.length}>
      <div role="rowgroup">
        <div class="line titles" role="row" aria-rowindex={1}>
          {columns.map((c) => (
            <span key={c.id} role="columnheader" class={`c-${c.id}`} aria-sort={sort.by !== c.id ? "none" : sort.descending ? "descending" : "ascending"}>
              <button onClick={() => setSort({ by: c.id, descending: sort.by === c.id ? !sort.descending : c.id === "health" })}>
                {c.title}<span aria-hidden="true">{sort.by === c.id ? (sort.descending ? " ↓" : " ↑") : ""}</span>
              </button>
            </span>
          ))}
        </div>
      </div>
      <div class="scroll" role="rowgroup" ref={list.element} onScroll={list.onScroll} onKeyDown={onKeyDown} tabIndex={-1}>
        <div class="inner" role="none" style={{ height: `${list.total}px` }}>
          {items.slice(list.first, list.last).map((item, i) => (
            <div key={item.key} class="line" role="row" data-row={list.first + i} aria-rowindex={list.first + i + 2} aria-selected={selected?.key === item.key ? "true" : "false"}
              tabIndex={list.first + i === home ? 0 : -1} style={{ transform: `translateY(${list.offsets[list.first + i]}px)` }}
              onFocus={() => setAt(list.first + i)} onClick={() => open({ key: item.key, node: item.node.name })}>
              {columns.map((c) => <span key={c.id} role="gridcell" class={`c-${c.id}`} title={typeof c.value(item) === "string" ? c.value(item) : undefined}>{cells[c.id](item)}</span>)}
            </div>
          ))}
        </div>
        {items.length === 0 && <div role="row"><p role="gridcell" class="none">Nothing matches.</p></div>}
      </div>
    </div>
  );
}
