// What a person does with the dashboard, done by Chromium against the real appliance. Screenshots are kept in
// test-artifacts/. The last line counts.
import { mkdir, readFile } from "node:fs/promises";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { gunzipSync } from "node:zlib";
import { startAppliance, until } from "./appliance.mjs";
import { launch } from "./launch.mjs";

const here = path.dirname(fileURLToPath(import.meta.url));
const root = path.resolve(here, "../..");
const artifacts = path.join(root, "test-artifacts");
const axe = await readFile(path.join(here, "node_modules/axe-core/axe.min.js"), "utf8");
let passed = 0;
let failed = 0;

async function check(name, test) {
  try {
    await test();
    passed++;
    console.log(`ok: ${name}`);
  } catch (e) {
    failed++;
    console.log(`FAILED: ${name}\n  ${String(e.stack ?? e).replaceAll("\n", "\n  ")}`);
  }
}

function expect(condition, message) {
  if (!condition) throw new Error(message);
}

async function accessible(page) {
  // The page's content policy admits no foreign script; the checker goes in by the debugging protocol.
  await page.evaluate(axe);
  const { violations } = await page.evaluate(() => globalThis.axe.run());
  const serious = violations.filter((v) => v.impact === "serious" || v.impact === "critical");
  expect(serious.length === 0, serious.map((v) => `${v.id}: ${v.help} (${v.nodes.map((n) => n.target).join(", ")})`).join("; "));
}

/** truth is what the demo clip shows: by frame, the boxes (0 to 1) of the objects that count. */
async function truth() {
  const rows = gunzipSync(await readFile(path.join(root, "appliance/demo/clip/truth.csv.gz"))).toString().trim().split("\n");
  const frames = new Map();
  for (const r of rows) {
    const [frame, , x, y, w, h, scored] = r.split(",").map(Number);
    if (!scored) continue;
    if (!frames.has(frame)) frames.set(frame, []);
    frames.get(frame).push({ x1: x / 640, y1: y / 360, x2: (x + w) / 640, y2: (y + h) / 360 });
  }
  return frames;
}

function iou(a, b) {
  const w = Math.max(0, Math.min(a.x2, b.x2) - Math.max(a.x1, b.x1));
  const h = Math.max(0, Math.min(a.y2, b.y2) - Math.max(a.y1, b.y1));
  const area = (r) => (r.x2 - r.x1) * (r.y2 - r.y1);
  return (w * h) / (area(a) + area(b) - w * h || 1);
}

/** drawn collects what is drawn over a camera's picture for so many pictures with boxes. */
const drawn = (page, pictures) => page.evaluate((n) => new Promise((done, fail) => {
  const all = [];
  setTimeout(() => fail(new Error(`only ${all.length} pictures with boxes within 30 s`)), 30000);
  document.querySelector(".tile canvas").addEventListener("drawn", (e) => {
    if (e.detail.boxes.length) all.push(e.detail);
    if (all.length === n) done(all);
  });
}), pictures);

const shot = (page, name) => page.screenshot({ path: path.join(artifacts, `${name}.png`) });

await mkdir(artifacts, { recursive: true });
const appliance = await startAppliance();
const browser = await launch();
try {
  const context = await browser.newContext({ viewport: { width: 1440, height: 900 }, colorScheme: "dark" });
  const page = await context.newPage();
  const faults = [];
  let transferred = 0;
  page.on("pageerror", (e) => faults.push(e.message));
  // A refused token is a fault of the browser's console, and one of the checks.
  page.on("console", (m) => m.type() === "error" && !m.location().url.endsWith("/session") && faults.push(m.text()));
  page.on("response", async (r) => {
    if (r.url().includes("/live") || r.url().includes("/v1/")) return;
    transferred += Number(r.headers()["content-length"] ?? (await r.body().catch(() => [])).length);
  });
  await page.goto(`${appliance.url}/`);

  await check("the wall shows the demo camera live, with boxes on it", async () => {
    await page.locator(".tile .badge", { hasText: "live" }).waitFor({ timeout: 30000 });
    const drawn = await page.evaluate(() => new Promise((done, fail) => {
      setTimeout(() => fail(new Error("no box was drawn within 20 s")), 20000);
      document.querySelector(".tile canvas").addEventListener("drawn", (e) => e.detail.boxes.length && done(e.detail));
    }));
    expect(drawn.boxes.every((b) => b.x1 < b.x2 && b.y1 < b.y2 && b.class), `odd boxes: ${JSON.stringify(drawn)}`);
    await shot(page, "live-dark");
  });
  await check("a drawn box sits on its object: IoU with the truth at the same capture time", async () => {
    const started = Date.parse(/demonstration begins" first_frame=(\S+)/.exec(appliance.log())?.[1]);
    const [frames, pictures] = [await truth(), await drawn(page, 60)];
    const best = pictures.flatMap(({ capture, boxes }) => {
      const k = Math.round(((capture - started) / 1000) * 15);
      const objects = frames.get((k % 900) + 1) ?? [];
      return boxes.map((b) => Math.max(0, ...objects.map((o) => iou(b, o))));
    }).sort((a, b) => a - b);
    const share = best.filter((v) => v >= 0.7).length / best.length;
    console.log(`   median IoU ${best[best.length >> 1].toFixed(2)}, ${Math.round(100 * share)} % of ${best.length} boxes at 0.7 or more`);
    expect(best[best.length >> 1] >= 0.8 && share >= 0.7, "the boxes are beside their objects");
  });
  await check("the picture is never older than two seconds while the camera streams", async () => {
    await page.waitForFunction(() => /old$/.test(document.querySelector(".tile .age").textContent));
    expect(!(await page.locator(".tile.stale").count()), "the tile is marked as stale");
  });
  await check("the page and its assets weigh less than 200 KB", async () => {
    expect(transferred > 0 && transferred < 200e3, `${transferred} bytes`);
  });
  await check("the wall has no serious accessibility finding", () => accessible(page));
  await check("the latest tracks fill up", async () => {
    await page.locator(".side tr[data-track]").first().waitFor({ timeout: 30000 });
  });
  for (const [hash, name, ready] of [
    ["#/camera/street", "camera", "dl.facts dd"], ["#/tracks", "tracks", "tr[data-track]"], ["#/events", "events", "tbody tr"],
    ["#/cameras", "cameras", "tr[data-camera]"], ["#/system", "system", "tbody tr"],
  ]) {
    await check(`the screen ${name} shows what it should, and is accessible`, async () => {
      await page.goto(`${appliance.url}/${hash}`);
      await page.locator(ready).first().waitFor({ timeout: 15000 });
      await accessible(page);
      await shot(page, name);
    });
  }
  await check("a track opens", async () => {
    await page.goto(`${appliance.url}/#/tracks`);
    await page.locator("tr[data-track] a").first().click();
    await page.locator(".picture.path canvas").waitFor();
    await shot(page, "track");
  });
  await check("signed in, a camera with a wrong address says why, can be changed, and removed", async () => {
    await page.goto(`${appliance.url}/#/signin`);
    await page.getByLabel("Token").fill("not-a-token");
    await page.getByRole("button", { name: "Sign in" }).click();
    await page.locator(".answer.bad", { hasText: "does not know" }).waitFor();
    await page.getByLabel("Token").fill((await readFile(path.join(appliance.data, "admin.token"), "utf8")).trim());
    await page.getByRole("button", { name: "Sign in" }).click();
    await page.locator(".note", { hasText: "Signed in" }).waitFor();
    await page.goto(`${appliance.url}/#/cameras`);
    await page.getByRole("button", { name: "Add a camera" }).click();
    await page.locator("input[name=id]").fill("cellar");
    await page.locator("input[name=uri]").fill("rtsp://operator:p%40ss@127.0.0.1:9/none");
    await page.locator("input[name=username]").focus();
    expect((await page.locator("input[name=uri]").inputValue()) === "rtsp://127.0.0.1:9/none", "credentials stayed in the address");
    expect((await page.locator("input[name=password]").inputValue()) === "p@ss", "the password did not move to its field");
    await page.getByRole("button", { name: "Add", exact: true }).click();
    const row = page.locator("tr[data-camera=cellar]");
    await row.waitFor();
    await until("the reason in the row", async () => /refused|unreachable|connect/i.test(await row.locator(".why").innerText()), 30);
    expect(!(await page.content()).includes("p@ss") && !(await page.content()).includes("p%40ss"), "the password is on the page");
    await shot(page, "wrong-address");
    page.once("dialog", (d) => d.accept());
    await row.getByRole("button", { name: "Remove" }).click();
    await row.waitFor({ state: "detached" });
  });
  await check("it works on a phone, in light colours", async () => {
    const phone = await browser.newContext({ viewport: { width: 390, height: 844 }, colorScheme: "light", deviceScaleFactor: 2 });
    const small = await phone.newPage();
    await small.goto(`${appliance.url}/`);
    await small.locator(".tile .badge", { hasText: "live" }).waitFor({ timeout: 30000 });
    const wide = await small.evaluate(() => document.documentElement.scrollWidth);
    expect(wide <= 390, `the page is ${wide} px wide on a screen of 390`);
    await accessible(small);
    await shot(small, "live-phone");
    await phone.close();
  });
  await check("the page reported no fault", async () => expect(faults.length === 0, faults.join("; ")));
} finally {
  await browser.close();
  await appliance.stop();
}
console.log(`${passed} passed, ${failed} failed`);
process.exitCode = failed ? 1 : 0;
