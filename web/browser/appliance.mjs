// A real appliance on the demo camera, on free ports and in a folder of its own.
import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, rm } from "node:fs/promises";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import path from "node:path";
import { fileURLToPath } from "node:url";

const here = path.dirname(fileURLToPath(import.meta.url));
const root = path.resolve(here, "../..");

async function freePort() {
  const s = createServer().listen(0, "127.0.0.1");
  await once(s, "listening");
  const { port } = s.address();
  s.close();
  await once(s, "close");
  return port;
}

/** until asks again and again until ask returns something true; it says what it waited for when time is up. */
export async function until(what, ask, seconds = 60) {
  const end = Date.now() + seconds * 1000;
  let last;
  for (;;) {
    try {
      const value = await ask();
      if (value) return value;
    } catch (e) {
      last = e;
    }
    if (Date.now() > end) throw new Error(`waited ${seconds} s for ${what}${last ? `; last: ${last.message}` : ""}`);
    await new Promise((r) => setTimeout(r, 200));
  }
}

/** startAppliance runs an appliance with these arguments; with the demonstration it waits for the first tracks. */
export async function startAppliance(extra = ["--demo"]) {
  const data = await mkdtemp(path.join(tmpdir(), "vedette-web-"));
  const ports = {};
  for (const p of ["http", "grpc", "infer-http", "infer-grpc", "infer-metrics"]) ports[p] = await freePort();
  const flags = Object.entries(ports).map(([name, port]) => `--${name}=127.0.0.1:${port}`);
  const child = spawn(path.join(root, "bin/vedette"), ["run", ...extra, "--data-dir", data, ...flags], { stdio: ["ignore", "pipe", "pipe"] });
  let log = "";
  for (const s of [child.stdout, child.stderr]) s.on("data", (d) => (log = (log + d).slice(-40000)));
  const url = `http://127.0.0.1:${ports.http}`;
  const stop = async () => {
    if (child.exitCode === null) {
      child.kill("SIGINT");
      const hard = setTimeout(() => child.kill("SIGKILL"), 15000);
      await once(child, "exit");
      clearTimeout(hard);
    }
    await rm(data, { recursive: true, force: true });
  };
  try {
    await until(extra.length ? "the first tracks" : "its health", async () => {
      if (child.exitCode !== null) throw new Error(`vedette ended with ${child.exitCode}`);
      if (!extra.length) return (await fetch(`${url}/healthz`)).ok;
      const answer = await fetch(`${url}/v1/tracks?page_size=1`);
      return answer.ok && (await answer.json()).tracks?.length > 0;
    });
  } catch (e) {
    await stop();
    throw new Error(`${e.message}\n--- what the appliance printed\n${log}`);
  }
  return { url, data, child, stop, log: () => log };
}
