// Opens the dashboard as a user does, and prints a line of JSON for each check. dashboard_test.go runs it.
import { chromium } from "playwright-core";
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";

const settings = JSON.parse(process.argv[2]);
const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const print = (line) => console.log(JSON.stringify(line));

// The browser's sandbox needs another user than root; it only sees this checkout's page.
const browser = await chromium.launch({ executablePath: "/usr/bin/chromium-headless-shell", args: ["--no-sandbox", "--disable-gpu", "--enable-precise-memory-info"] });

// check makes one check. The next ones follow where it fails.
async function check(name, run) {
  try {
    await run();
    print({ check: name });
  } catch (error) {
    print({ check: name, error: String(error.message ?? error).slice(0, 1500) });
  }
}

function equal(got, want, what = "got") {
  if (JSON.stringify(got) !== JSON.stringify(want)) throw new Error(`${what} ${JSON.stringify(got)}, want ${JSON.stringify(want)}`);
}

// enter opens a dashboard: the first time with its token, which works once, and then with the session that the first page got.
const sessions = new Map();

async function enter(context, page, url) {
  const { origin } = new URL(url);
  const known = sessions.get(url);
  if (known) await context.addInitScript(([at, session]) => location.origin === at && localStorage.setItem("session", session), [origin, known]);
  await page.goto(known ? origin : url);
  await page.getByRole("heading", { level: 1 }).waitFor();
  await page.waitForFunction(() => localStorage.getItem("session") !== null);
  equal(page.url(), `${origin}/`, "the address");
  equal(await context.cookies(), [], "cookies, which every port of 127.0.0.1 would get");
  sessions.set(url, await page.evaluate(() => localStorage.getItem("session")));
}

// open opens a page that records what it must not do.
async function open(url, { width = 1280, height = 800, scheme = "light" } = {}) {
  const context = await browser.newContext({ viewport: { width, height }, colorScheme: scheme });
  const page = await context.newPage();
  page.setDefaultTimeout(60000);
  page.faults = [];
  page.on("console", (m) => ["error", "warning"].includes(m.type()) && page.faults.push(`console: ${m.text()}`));
  page.on("pageerror", (e) => page.faults.push(`error: ${e.stack}`));
  page.on("dialog", (d) => page.faults.push(`dialog: ${d.message()}`));
  context.on("request", (r) => new URL(r.url()).origin === new URL(url).origin || page.faults.push(`request: ${r.url()}`));
  await enter(context, page, url);
  await page.getByText(/^Live, read at/).waitFor({ timeout: 60000 });
  return page;
}

// close ends a page that made no mistake.
async function close(page, name) {
  await check(`${name}: no error, no request to another host`, () => equal(page.faults, [], "faults"));
  await page.context().close();
}

// accessible runs axe. The page's policy permits no script of another origin, so axe comes through the browser's debugger.
async function accessible(page, name) {
  await check(`${name}: axe`, async () => {
    await page.evaluate(axe);
    const { violations } = await page.evaluate(() => window.axe.run(document, { resultTypes: ["violations"] }));
    equal(violations.map((v) => ({ id: v.id, nodes: v.nodes.slice(0, 3).map((n) => `${n.html.slice(0, 160)} ${n.failureSummary?.slice(0, 200)}`), count: v.nodes.length })), [], "violations");
  });
}

const detail = (page) => page.getByRole("complementary", { name: "Details" });
const nodes = (page) => page.locator(".map .node");
const focused = (page) => page.evaluate(() => document.activeElement.getAttribute("aria-label") ?? document.activeElement.tagName);

// readable checks what a desktop's width has room for.
async function readable(page, name) {
  await check(`map ${name}: the header is one line, and messages are whole`, async () => {
    const below = await page.locator(".head > *").evaluateAll(([first, ...others]) => others.filter((e) => e.getBoundingClientRect().top >= first.getBoundingClientRect().bottom).map((e) => e.textContent));
    equal(below, [], "in the header's second line");
    const messages = page.locator(".problem > span");
    equal((await messages.count()) > 1, true, "there are messages");
    equal(await messages.evaluateAll((all) => all.filter((e) => e.scrollHeight > e.clientHeight).map((e) => e.textContent)), [], "cut messages");
  });
}

// disks checks the bars of a node whose second disk is missing. The third is twice as large as each of the others.
async function disks() {
  const page = await open(settings.faulty);
  await check("disks: names, sizes, parts of volumes", async () => {
    const bars = page.getByRole("rowgroup", { name: "node-0002" }).locator(".bar.disk");
    equal(await bars.locator(".barlabel").allTextContents(), ["nvme0n1", "sda", "was nvme1n1"]);
    const [small, large, missing] = await bars.locator(".track").evaluateAll((all) => all.map((e) => e.offsetWidth));
    equal([Math.abs(large - 2 * small) <= 2, Math.abs(small - missing) <= 1], [true, true], `the widths ${small}, ${large}, ${missing} have the disks' proportions:`);
    const labels = (kind) => bars.first().locator(`.part.${kind}`).evaluateAll((all) => all.map((e) => e.getAttribute("aria-label")));
    equal((await labels("pool")).map((label) => label.match(/, (.*), thin pool/)[1]), ["256 GiB", "1 GiB of 256 GiB"]);
    equal((await labels("volume")).some((label) => / GiB of .* GiB, volume/.test(label)), true, "a part of a striped volume has its own size");
  });
  await close(page, "disks");
}

async function pictures() {
  for (const scheme of ["light", "dark"]) {
    for (const [width, height] of [[390, 844], [1024, 768], [1920, 1080]]) {
      const name = `${width}-${scheme}`;
      const page = await open(settings.faulty, { width, height, scheme });
      const shot = (view) => page.screenshot({ path: `${settings.pictures}/${view}-${name}.png` });
      await page.locator(".bar.missing").waitFor();
      await page.locator(".map .part.wipe").first().waitFor();
      await shot("map");
      await accessible(page, `map ${name}`);
      await check(`map ${name}: nothing is wider than the window`, async () => equal(await page.evaluate(() => document.documentElement.scrollWidth), width));
      if (width >= 1024) await readable(page, name);
      const widths = await page.locator(".map .part.volume").evaluateAll((all) => all.map((p) => p.offsetWidth));
      await page.locator(".map .part.volume").nth(widths.indexOf(Math.max(...widths))).click();
      await detail(page).getByText("ProvisioningSucceeded").waitFor();
      await shot("details");
      if (width !== 1024) await accessible(page, `details ${name}`);
      await page.keyboard.press("Escape");
      await page.getByRole("button", { name: "Table" }).click();
      await page.locator("[data-row='0']").waitFor();
      await shot("table");
      if (width !== 1024) await accessible(page, `table ${name}`);
      await close(page, name);
    }
  }
}

async function interactions() {
  const page = await open(settings.few, { width: 1400, height: 900 });
  const search = page.getByRole("searchbox");
  await check("search by claim", async () => {
    await page.keyboard.press("/");
    await page.keyboard.type("shop/data-postgres-7");
    await page.getByRole("status").getByText("1 node of 24").waitFor();
    equal(await nodes(page).getAttribute("aria-label"), "node-0008");
    equal((await page.locator(".map .part:not(.dim)").count()) > 0, true, "a part is highlighted");
    await search.fill("");
  });
  await check("search by node", async () => {
    await search.fill("node-0020");
    await page.getByRole("status").getByText("1 node of 24").waitFor();
    equal(await page.locator(".map .part.dim").count(), 0, "dimmed parts");
    await search.fill("");
  });
  await check("a silent node", async () => {
    await page.getByText("+ 1 node not read").waitFor();
    await search.fill("node-0009");
    await page.locator(".map .part.unread").first().waitFor();
    equal(await page.locator(".map .part.pending").count(), 0, "volumes that are not on a disk");
    await search.fill("");
  });
  await check("filters", async () => {
    await page.getByRole("button", { name: /^No answer/ }).click();
    await page.getByRole("status").getByText("1 node of 24").waitFor();
    equal(await nodes(page).getAttribute("aria-label"), "node-0009");
    await page.getByText("has not answered within 10s").waitFor();
    await page.getByRole("button", { name: /^All/ }).click();
    await page.getByRole("combobox", { name: "Kind" }).selectOption("wipe");
    equal(await page.locator(".map .part.volume:not(.dim)").count(), 0, "volumes that are not dimmed");
    await page.getByRole("combobox", { name: "Kind" }).selectOption("");
    await page.getByRole("combobox", { name: "Namespace" }).selectOption("queue");
    equal(await page.locator(".map .part.volume:not(.dim)").evaluateAll((all) => all.every((p) => p.getAttribute("aria-label").startsWith("queue/"))), true);
    await page.getByRole("combobox", { name: "Namespace" }).selectOption("");
  });
  await check("keyboard", async () => {
    await page.locator("[data-at='0.0.0']").focus();
    await page.keyboard.press("ArrowRight");
    equal(await page.evaluate(() => document.activeElement.dataset.at), "0.0.1");
    await page.keyboard.press("ArrowDown");
    equal((await page.evaluate(() => document.activeElement.dataset.at)).slice(0, 4), "0.1.");
    for (let i = 0; i < 60; i++) await page.keyboard.press("ArrowDown"); // past what is visible
    await page.waitForFunction(() => Number(document.activeElement.dataset.at?.split(".")[0]) > 12);
    await page.keyboard.press("Shift+Home");
    equal(await page.evaluate(() => document.activeElement.dataset.at), "0.0.0");
    await page.keyboard.press("Enter");
    await detail(page).waitFor();
    equal(await page.evaluate(() => document.activeElement.tagName), "H2", "focus");
    await page.keyboard.press("Escape");
    await detail(page).waitFor({ state: "detached" });
    equal(await page.evaluate(() => document.activeElement.dataset.at), "0.0.0", "focus");
    await page.keyboard.press("Shift+Enter");
    await detail(page).getByRole("heading", { name: "node-0001", level: 2 }).waitFor();
    await detail(page).getByText("6.12.0-1-amd64").waitFor();
    await page.keyboard.press("Escape");
  });
  await check("table: sort and open", async () => {
    await page.getByRole("button", { name: "Table" }).click();
    await page.getByRole("button", { name: "Size" }).click();
    await page.getByRole("columnheader", { name: /Size/ }).and(page.locator("[aria-sort='ascending']")).waitFor();
    await page.locator("[data-row='0']").focus();
    await page.keyboard.press("End");
    await page.waitForFunction(() => Number(document.activeElement.dataset.row) > 500);
    await page.keyboard.press("Enter");
    await detail(page).getByRole("heading", { level: 2 }).waitFor();
    const cut = await page.locator("[data-row] .c-claim").evaluateAll((all) => all.filter((e) => e.scrollWidth > e.clientWidth).map((e) => e.textContent));
    equal(cut, [], "cut names beside the details");
    await page.keyboard.press("Escape");
    await page.getByRole("button", { name: "Map" }).click();
  });
  await check("live changes and history", async () => {
    await search.fill("node-0001");
    await page.locator(".map .part.volume").first().waitFor();
    await page.getByRole("button", { name: "Table" }).click();
    await page.locator("[data-row]").filter({ hasText: "shop/data-postgres-0" }).first().click();
    print({ change: "grow" });
    await detail(page).getByText(/size .* → 77 GiB/).waitFor();
    await detail(page).getByText(/^77 GiB \(82,678,120,448 B, 19,712 extents of 4 MiB\)$/).waitFor();
    print({ change: "degrade" });
    await detail(page).getByText("VolumeDegraded: RAID volume has lost a leg").waitFor();
    await page.getByRole("button", { name: "Map" }).click();
    await page.locator(".node.warning").waitFor();
    print({ change: "add" });
    await search.fill("added-live");
    await page.getByRole("status").getByText("1 node of 24").waitFor();
    await search.fill("node-0002");
    print({ change: "silence" });
    await page.getByText("Last answer shown. the driver (pod nodelvm-node-0002) has not answered").waitFor();
  });
  await close(page, "interactions");
}

async function hostile() {
  for (const view of ["Map", "Table"]) {
    const page = await open(settings.hostile, { width: 1400, height: 900 });
    await check(`hostile texts, ${view}`, async () => {
      await page.getByRole("button", { name: view }).click();
      await page.getByRole("searchbox").fill("onerror");
      for (const one of await page.locator(view === "Map" ? ".map .part:not(.dim)" : "[data-row]").all()) {
        await one.click({ position: { x: 1, y: 6 } });
        await detail(page).waitFor();
        await page.keyboard.press("Escape");
      }
      await page.locator(view === "Map" ? ".map .part.error" : "[data-row]").filter(view === "Map" ? {} : { hasText: "hostile/" }).first().click({ position: { x: 1, y: 6 } });
      await detail(page).locator(".events li").nth(1).waitFor();
      equal(await page.getByText(settings.hostileText.slice(0, 40)).count() > 3, true, "the texts are shown");
      equal(await page.evaluate(() => [typeof window.hostile, document.querySelectorAll("img, svg, #page script, iframe, a[href]").length]), ["undefined", 0]);
    });
    await accessible(page, `hostile texts, ${view}`);
    await close(page, `hostile texts, ${view}`);
  }
  const context = await browser.newContext();
  const page = await context.newPage();
  await check("a page of another origin reads nothing", async () => {
    await enter(context, page, settings.hostile);
    await page.goto(new URL(settings.few).origin.replace("127.0.0.1", "localhost")); // refuses, and is another origin
    const origin = new URL(settings.hostile).origin;
    const answers = await page.evaluate((url) => Promise.all(["", "/api/stream", "/api/events?claim=x"].map((path) =>
      fetch(url + path, { mode: "no-cors", credentials: "include" }).then((r) => `${r.type} ${r.status}`, (e) => e.name))), origin);
    equal(answers.every((a) => a === "TypeError"), true, `answers ${answers}`);
  });
  await check("a page without the session says so", async () => {
    const other = await (await browser.newContext()).newPage();
    await other.goto(new URL(settings.hostile).origin);
    await other.getByText("The URL was opened before").waitFor();
    equal(await other.evaluate(() => localStorage.length), 0, "entries in the storage");
    await other.context().close();
  });
  await context.close();
}

async function limited() {
  const page = await open(settings.limited);
  await check("a user with few rights sees what is missing", async () => {
    await page.getByText("Only claims of the namespace shop are shown.").waitFor();
    await page.locator(".map .part.unread").waitFor();
  });
  await accessible(page, "few rights");
  await close(page, "few rights");
}

async function many() {
  const page = await open(settings.many, { width: 1920, height: 1080 });
  await check("20,000 volumes", async () => {
    const paint = await page.evaluate(() => Math.round(performance.getEntriesByName("first-contentful-paint")[0].startTime));
    const debug = await page.context().newCDPSession(page);
    await debug.send("HeapProfiler.collectGarbage");
    const heap = await page.evaluate(() => performance.memory.usedJSHeapSize);
    const elements = await page.evaluate(() => document.querySelectorAll("*").length);
    const timed = async (act) => {
      const began = Date.now();
      await act();
      return Date.now() - began;
    };
    const search = await timed(async () => {
      await page.getByRole("searchbox").fill("kafka-777");
      await page.getByRole("status").getByText("1 node of 1,000").waitFor();
    });
    await page.getByRole("searchbox").fill("");
    const scroll = await timed(async () => {
      await page.locator(".map").evaluate((e) => (e.scrollTop = e.scrollHeight));
      await page.locator("[aria-label='node-1000']").waitFor();
    });
    const table = await timed(async () => {
      await page.getByRole("button", { name: "Table" }).click();
      await page.locator("[data-row='0']").waitFor();
    });
    const rows = Number(await page.getByRole("grid").getAttribute("aria-rowcount"));
    print({ figure: `1,000 nodes, ${rows - 1} items: first contentful paint ${paint} ms, JS heap ${(heap / 2 ** 20).toFixed(1)} MiB, ${elements} elements, search ${search} ms, scroll to the end ${scroll} ms, table ${table} ms` });
    await page.getByRole("button", { name: "Map" }).click();
    await page.screenshot({ path: `${settings.pictures}/many.png` });
    if (rows < 24000) throw new Error(`${rows} rows`);
    if (elements > 4000) throw new Error(`${elements} elements: the lists are not virtual`);
    if (heap > 256 * 2 ** 20) throw new Error(`the heap has ${heap} bytes`);
  });
  await close(page, "20,000 volumes");
}

for (const part of [interactions, disks, hostile, limited, many, pictures]) await part();
await browser.close();
