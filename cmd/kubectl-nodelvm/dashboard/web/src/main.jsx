import { render } from "preact";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { Detail } from "./detail.jsx";
import { Map } from "./map.jsx";
import { kinds, namespaces, noFilter, select, totals } from "./select.js";
import { connect, store, subscribe } from "./store.js";
import { Table } from "./table.jsx";
import { clock, count, percent, plural, short } from "./units.js";

function Page() {
  const [version, setVersion] = useState(0);
  const [filter, setFilter] = useState(noFilter);
  const [view, setView] = useState("map");
  const [selected, setSelected] = useState(null);
  const origin = useRef(null); // has the focus again when the details close
  useEffect(() => subscribe(() => setVersion(store.version)), []);
  const nodes = useMemo(() => [...store.nodes.values()], [version]);
  const rows = useMemo(() => select(nodes, filter), [nodes, filter]);
  const open = (what) => {
    origin.current = document.activeElement;
    setSelected(what);
  };
  const close = () => {
    setSelected(null);
    if (origin.current?.isConnected) origin.current.focus();
    else document.querySelector(".scroll [tabindex='0']")?.focus();
  };
  useEffect(() => {
    const onKey = (e) => {
      if (e.key === "/" && !e.target.closest("input, select")) {
        e.preventDefault();
        document.getElementById("search").focus();
      }
    };
    addEventListener("keydown", onKey);
    return () => removeEventListener("keydown", onKey);
  }, []);
  const list = { rows, filter, selected, open };
  return (
    <div class={`page ${selected ? "split" : ""}`}>
      <Head nodes={nodes} />
      <Filters nodes={nodes} rows={rows} filter={filter} setFilter={setFilter} view={view} setView={setView} />
      <Limits />
      <main>
        {view === "map" ? <Map {...list} /> : <Table {...list} />}
        {selected && <Detail selected={selected} close={close} />}
      </main>
      <Legend />
    </div>
  );
}

function Head({ nodes }) {
  const sum = useMemo(() => totals(nodes), [nodes]);
  const { status, live, hello } = store;
  const reading = !status.time;
  return (
    <header class="head">
      <h1>nodelvm <span class="quiet">{hello.cluster}</span></h1>
      <dl class="totals">
        <div><dt>Nodes</dt><dd>{count(sum.nodes)}</dd></div>
        <div><dt>Volumes</dt><dd>{count(sum.volumes)}</dd></div>
        <div><dt>Snapshots</dt><dd>{count(sum.snapshots)}</dd></div>
        <div><dt>Free</dt><dd>{short(sum.free)} <span class="quiet">of {short(sum.size)}<span class="wide">, {percent(sum.free, sum.size)}</span></span>{sum.unread > 0 && <span class="unreadnote" title="These nodes have not answered: their disks are not counted"> + {plural(sum.unread, "node")} not read</span>}</dd></div>
        <div><dt>Left to wipe</dt><dd>{sum.wipe > 0 ? short(sum.wipe) : "–"}</dd></div>
      </dl>
      <p class={`live ${live ? "" : "off"}`}>
        {!live ? store.refusal || "Not connected: is kubectl nodelvm dashboard still running?" : reading ? `Reading nodes: ${count(nodes.length)} of ${count(Math.max(status.known, nodes.length))}` : `Live, read at ${clock(status.time)}`}
      </p>
    </header>
  );
}

function Filters({ nodes, rows, filter, setFilter, view, setView }) {
  const sum = useMemo(() => totals(nodes), [nodes]);
  const spaces = useMemo(() => namespaces(nodes), [nodes]);
  const set = (change) => setFilter({ ...filter, ...change });
  const healths = [["all", "All", sum.nodes], ["problem", "Problems", sum.problem], ["unknown", "No answer", sum.unknown]];
  return (
    <form class="filters" role="search" onSubmit={(e) => e.preventDefault()}>
      <input id="search" type="search" placeholder="Search claim, volume, pod, node, disk  ( / )" aria-label="Search" value={filter.query} autocomplete="off"
        spellcheck={false} onInput={(e) => set({ query: e.target.value })} />
      <div class="choice" role="group" aria-label="Nodes">
        {healths.map(([id, title, n]) => (
          <button key={id} type="button" aria-pressed={filter.health === id} onClick={() => set({ health: id })}>{title} <span class="n">{count(n)}</span></button>
        ))}
      </div>
      <select aria-label="Namespace" value={filter.namespace} onChange={(e) => set({ namespace: e.target.value })}>
        <option value="">All namespaces</option>
        {spaces.map((name) => <option key={name} value={name}>{name}</option>)}
      </select>
      <select aria-label="Kind" value={filter.kind} onChange={(e) => set({ kind: e.target.value })}>
        <option value="">All kinds</option>
        {kinds.map(([id, title]) => <option key={id} value={id}>{title}</option>)}
      </select>
      <span class="matches quiet" role="status">{rows.length === nodes.length ? "" : `${plural(rows.length, "node")} of ${count(nodes.length)}`}</span>
      <div class="choice views" role="group" aria-label="View">
        {[["map", "Map"], ["table", "Table"]].map(([id, title]) => (
          <button key={id} type="button" aria-pressed={view === id} onClick={() => setView(id)}>{title}</button>
        ))}
      </div>
    </form>
  );
}

const Limits = () =>
  store.status.limits?.length > 0 && (
    <div class="limits" role="region" aria-label="What you may not read" tabIndex={0}>
      <ul>{store.status.limits.map((text, i) => <li key={i}>{text}</li>)}</ul>
    </div>
  );

const Legend = () => (
  <footer class="legend" aria-label="Legend">
    {[["volume", "volume"], ["snapshot", "snapshot"], ["pool", "thin pool"], ["wipe", "being wiped"], ["other", "not managed"], ["pending", "not on a disk"], ["unread", "not read"], ["free", "free"],
      ["volume warning", "warning"], ["volume error", "error"]].map(([kind, title]) => (
      <span key={kind}><i class={`part ${kind}`} aria-hidden="true" />{title}</span>
    ))}
    <span class="keys">Arrow keys move, Enter opens, Shift+Enter opens the node, Escape closes, / searches</span>
  </footer>
);

render(<Page />, document.getElementById("page"));
connect();
