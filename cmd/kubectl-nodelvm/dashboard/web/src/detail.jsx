// What is known of one item or free range.
import { useEffect, useRef, useState } from "preact/hooks";
import { Mark } from "./map.jsx";
import { kindWord, nameOf, rangeWords } from "./segments.js";
import { dataURL } from "./session.js";
import { store } from "./store.js";
import { bytes, clock, count, date, percent } from "./units.js";

export function Detail({ selected, close }) {
  const heading = useRef(null);
  const node = store.nodes.get(selected.node);
  const item = selected.key && node?.items.find((i) => i.key === selected.key);
  useEffect(() => heading.current?.focus(), [selected.key, selected.part, selected.node]);
  const title = item ? nameOf(item) : selected.key ? "No longer on the node" : !selected.part ? selected.node : selected.part.kind === "free" ? "Free" : "Unknown use";
  return (
    <aside class="detail" aria-label="Details" onKeyDown={(e) => e.key === "Escape" && close()}>
      <header>
        <h2 tabIndex={-1} ref={heading}>{item && <Mark health={item.health} />} {title}</h2>
        <button class="close" onClick={close} aria-label="Close details" title="Close (Escape)">✕</button>
      </header>
      <div class="body" tabIndex={0} role="region" aria-label="Content">
        {item ? <Item item={item} node={node} /> : selected.part ? !selected.key && <Range {...selected} /> : node && <NodeFacts node={node} />}
        <History node={selected.node} id={item?.id} />
      </div>
    </aside>
  );
}

const Row = ({ name, children }) => (children ? <><dt>{name}</dt><dd>{children}</dd></> : null);

function Range({ bar, part, node }) {
  return (
    <dl>
      <Row name="Node">{node}</Row>
      <Row name="Disk">{bar.disk?.device ?? bar.label}</Row>
      <Row name="Volume group">{bar.group?.name}</Row>
      <Row name="Size">{`${bytes(part.size)} (${count(part.size)} B)`}</Row>
      <Row name="Extents">{rangeWords(part).replace("extents ", "")}</Row>
    </dl>
  );
}

function NodeFacts({ node }) {
  return (
    <>
      {node.messages.map((text, i) => <p key={i} class={`message ${node.health}`}>{text}</p>)}
      <dl>
        <Row name="Driver">{node.version}</Row>
        <Row name="Kernel">{node.kernel}</Row>
        <Row name="Volumes">{count(node.items.filter((i) => i.kind === "volume").length)}</Row>
        <Row name="Left to wipe">{node.capacity.wipe > 0 && bytes(node.capacity.wipe)}</Row>
        <Row name="Not shown">{node.omitted > 0 && `${count(node.omitted)} entries: the node reports more than a page can show`}</Row>
      </dl>
      {node.groups.map((g) => (
        <section key={g.uuid}>
          <h3>Volume group {g.name}</h3>
          <dl>
            <Row name="Size">{bytes(g.size)}</Row>
            <Row name="Free">{bytes(g.free)}</Row>
            <Row name="Extent size">{bytes(g.extentSize)}</Row>
            <Row name="Tags">{g.tags?.join(", ")}</Row>
            <Row name="UUID">{g.uuid}</Row>
            {g.disks.map((d, i) => <Row key={i} name={`Disk ${i + 1}`}>{[d.device || `missing${d.lastPath ? `, was ${d.lastPath}` : ""}`, d.model, d.serial && `serial ${d.serial}`, d.slot && `slot ${d.slot}`, d.uuid && `PV ${d.uuid}`, d.state !== "ok" && d.device && d.state].filter(Boolean).join(", ")}</Row>)}
          </dl>
        </section>
      ))}
    </>
  );
}

function Item({ item, node }) {
  const group = node.groups.find((g) => g.name === item.group);
  return (
    <>
      {item.messages?.map((text, i) => <p key={i} class={`message ${item.health}`}>{text}</p>)}
      <dl>
        <Row name="Kind">{kindWord(item.kind)}</Row>
        <Row name="State">{item.state}</Row>
        <Row name="Claim">{item.claim}</Row>
        <Row name="Pods">{item.pods?.join(", ")}</Row>
        <Row name="PersistentVolume">{item.pv && `${item.pv}${item.phase ? ` (${item.phase})` : ""}`}</Row>
        <Row name="StorageClass">{item.class}</Row>
        <Row name="Size">{`${bytes(item.size)} (${count(item.size)} B${group ? `, ${count(Math.ceil(item.size / group.extentSize))} extents of ${bytes(group.extentSize)}` : ""})`}</Row>
        <Row name="Used">{item.used != null && `${bytes(item.used)}, ${percent(item.used, item.size)}`}</Row>
        <Row name="File system">{item.fileSystem && `${item.fileSystem.type}, ${item.fileSystem.spacePercent}% used, ${item.fileSystem.inodesPercent}% of the inodes`}</Row>
        <Row name="Node">{node.name}</Row>
        <Row name="Logical volume">{item.lv && `${item.group}/${item.lv}`}</Row>
        <Row name="Layout">{item.layout}</Row>
        <Row name="Thin pool">{item.pool}</Row>
        <Row name="Encryption">{item.encryption}</Row>
        <Row name="Snapshot of">{item.source}</Row>
        <Row name="UUID">{item.uuid}</Row>
        <Row name="Created">{item.created && date(item.created)}</Row>
        <Row name="Other cluster">{item.cluster}</Row>
      </dl>
      {group && <Extents item={item} node={node} group={group} />}
      {item.claim?.includes("/") && <Events item={item} />}
    </>
  );
}

const rangesShown = 200;

function Extents({ item, node, group }) {
  const index = node.items.indexOf(item);
  const found = group.disks.flatMap((disk) => disk.ranges.filter((r) => r[2] === index).map(([start, length]) => ({ disk, start, length })));
  if (found.length === 0) return null;
  return (
    <>
      <h3>Extents</h3>
      <table>
        <thead><tr><th>Disk</th><th class="number">First</th><th class="number">Last</th><th class="number">Size</th></tr></thead>
        <tbody>
          {found.slice(0, rangesShown).map((r, i) => (
            <tr key={i}><td>{r.disk.device || `PV ${r.disk.uuid}`}</td><td class="number">{count(r.start)}</td><td class="number">{count(r.start + r.length - 1)}</td><td class="number">{bytes(r.length * group.extentSize)}</td></tr>
          ))}
        </tbody>
      </table>
      {found.length > rangesShown && <p class="quiet">{count(found.length - rangesShown)} more</p>}
    </>
  );
}

// Events asks for the events when the item is opened: most items are never opened.
function Events({ item }) {
  const [answer, setAnswer] = useState(null);
  useEffect(() => {
    const stop = new AbortController();
    setAnswer(null);
    const cut = item.claim.indexOf("/");
    const query = new URLSearchParams({ namespace: item.claim.slice(0, cut), claim: item.claim.slice(cut + 1) });
    for (const pod of item.pods ?? []) query.append("pod", pod);
    fetch(dataURL("/api/events", query), { signal: stop.signal })
      .then(async (reply) => setAnswer(reply.ok ? { events: await reply.json() } : { error: await reply.text() }))
      .catch((error) => stop.signal.aborted || setAnswer({ error: `The dashboard does not answer: ${error.message}` }));
    return () => stop.abort();
  }, [item.key]);
  return (
    <>
      <h3>Events</h3>
      {answer?.error && <p class="message unknown">{answer.error}</p>}
      {answer?.events?.length === 0 && <p class="quiet">No events.</p>}
      <ul class="events">
        {answer?.events?.map((e, i) => (
          <li key={i} class={e.type === "Warning" ? "warning" : ""}>
            <b>{e.reason}</b> <span class="quiet">{e.object}{e.count > 1 && `, ${count(e.count)} times`}, {date(e.time)}</span>
            <div>{e.message}</div>
          </li>
        ))}
      </ul>
    </>
  );
}

const historyShown = 100;

function History({ node, id }) {
  const entries = store.history.filter((h) => h.node === node && (!id || h.id === id || h.id === "")).slice(-historyShown).reverse();
  return (
    <>
      <h3>Since the page was opened</h3>
      {entries.length === 0 && <p class="quiet">No change.</p>}
      <ul class="history">{entries.map((h, i) => <li key={i}><time class="quiet">{clock(h.time)}</time> {h.text}</li>)}</ul>
    </>
  );
}
