// Sixty-four cameras for the page, without anything being decoded: what the real appliance told of its camera for some
// seconds, told again under so many names.
import { once } from "node:events";
import { createServer, request } from "node:http";

/** record takes seconds of the live stream, each event with the time it came at. */
export async function record(url, seconds) {
  const stop = new AbortController();
  const end = setTimeout(() => stop.abort(), seconds * 1000);
  const events = [];
  const began = Date.now();
  let text = "";
  try {
    const answer = await fetch(`${url}/live`, { signal: stop.signal });
    for await (const chunk of answer.body.pipeThrough(new TextDecoderStream())) {
      text += chunk;
      for (let i; (i = text.indexOf("\n\n")) >= 0; text = text.slice(i + 2)) events.push({ at: Date.now() - began, text: text.slice(0, i + 2) });
    }
  } catch (e) {
    if (!stop.signal.aborted) throw e;
  }
  clearTimeout(end);
  return events;
}

/** multiply serves the dashboard at url, with its live state as recorded, for n cameras instead of the one. */
export async function multiply(url, events, camera, n) {
  const names = Array.from({ length: n }, (_, i) => `cam-${String(i + 1).padStart(2, "0")}`);
  const under = (text, name) => text.replaceAll(`cameras/${camera}`, `cameras/${name}`).replace(/"displayName":"[^"]*"/, `"displayName":"${name}"`);
  const jpeg = Buffer.from(await (await fetch(`${url}/v1/cameras/${camera}/snapshot.jpg?max_width=480`)).arrayBuffer());
  // Only the newest second is told again and again, with its times moved: the snapshot comes first, once.
  const cameras = events.filter((e) => e.text.startsWith("event: cameras") && e.text.includes('"change"')).slice(-1);
  const frames = events.filter((e) => e.text.startsWith("event: analytics") && e.text.includes('"frame"'));
  const session = events.filter((e) => e.text.includes("event: session")).slice(-1);
  const system = events.filter((e) => e.text.startsWith("event: system")).slice(-1);
  const now = (text) => text.replace(/"(captureTime|receiveTime|serverTime|lastFrameTime)":"[^"]*"/g, (_, k) => `"${k}":"${new Date().toISOString()}"`);
  const timers = new Set();
  const every = (ms, what, response) => {
    const t = setInterval(what, ms);
    timers.add(t);
    response.on("close", () => clearInterval(t));
  };
  const server = createServer((req, res) => {
    if (req.url.startsWith("/live/pictures")) {
      res.writeHead(200, { "Content-Type": "application/octet-stream" });
      const wanted = new URL(req.url, url).searchParams.getAll("camera");
      let k = 0;
      // Each camera has a new picture once a second, one after the other.
      every(1000 / Math.max(1, wanted.length), () => {
        const head = Buffer.from(JSON.stringify({ camera: wanted[k++ % wanted.length], capture: Date.now() }));
        const sizes = Buffer.alloc(8);
        sizes.writeUInt32BE(head.length, 0);
        sizes.writeUInt32BE(jpeg.length, 4);
        res.write(Buffer.concat([sizes, head, jpeg]));
      }, res);
      return;
    }
    if (req.url.startsWith("/live")) {
      res.writeHead(200, { "Content-Type": "text/event-stream" });
      for (const e of session) res.write(e.text);
      for (const e of system) res.write(now(e.text));
      for (const name of names) for (const e of cameras) res.write(under(now(e.text), name));
      res.write('event: cameras\ndata: {"synced":{}}\n\n');
      // Five analysed pictures a second of every camera, and its state once a second.
      let f = 0;
      every(1000 / (5 * n), () => res.write(under(now(frames[f % frames.length].text), names[f++ % n])), res);
      let c = 0;
      every(1000 / n, () => res.write(under(now(cameras[0].text), names[c++ % n])), res);
      return;
    }
    req.pipe(request(`${url}${req.url}`, { method: req.method, headers: req.headers }, (r) => {
      res.writeHead(r.statusCode, r.headers);
      r.pipe(res);
    }));
  }).listen(0, "127.0.0.1");
  await once(server, "listening");
  return {
    url: `http://127.0.0.1:${server.address().port}`,
    stop: async () => {
      timers.forEach(clearInterval);
      server.closeAllConnections();
      server.close();
      await once(server, "close");
    },
  };
}

/** frameRate counts how often a page may draw, in frames a second over some seconds. */
export const frameRate = (page, seconds) => page.evaluate((s) => new Promise((done) => {
  let n = 0;
  const began = performance.now();
  const count = (t) => {
    n++;
    if (t - began > s * 1000) done((1000 * n) / (t - began));
    else requestAnimationFrame(count);
  };
  requestAnimationFrame(count);
}), seconds);
