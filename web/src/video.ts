// Live video of one camera as the camera sends it, by WebRTC or by MP4 over a WebSocket, or else as JPEG after JPEG; every
// picture comes with its capture time, so that it can be joined with what was seen in it. docs/live-video.md describes all.

import { ask, type Refusal, refusalOf } from "./api";
import { millis } from "./dom";
import { Incoming, type Picture } from "./pictures";

/** How live video may come, best first. "mjpeg" is always there. */
export type Way = "whep" | "fmp4" | "mjpeg";

interface Offers { offers: string[]; reason?: string; message?: string; mime?: string }

/** How long a way may take until its first picture. */
const firstPicture = 6000;
/** How long pictures may stay away before the next way is tried. */
const silence = 8000;

type Take = (p: Picture) => void;

/** offered tells the ways there are of a camera, and why there are no more. */
export async function offered(camera: string): Promise<{ ways: Way[]; why: string }> {
  try {
    const o = await ask<Offers>("GET", `/live/${camera}/offers`);
    const playable = (way: string): boolean => way === "mjpeg" || (way === "whep" && "RTCPeerConnection" in window) || (way === "fmp4" && "MediaSource" in window && (!o.mime || MediaSource.isTypeSupported(o.mime)));
    return { ways: o.offers.filter(playable) as Way[], why: o.message ?? "" };
  } catch (e) {
    return { ways: ["mjpeg"], why: (e as Refusal).message };
  }
}

/** watch gives each picture a video element presents, with the capture time that captureOf knows of it. */
function watch(video: HTMLVideoElement, take: Take, captureOf: (m: VideoFrameCallbackMetadata) => number | undefined, seen: () => void, signal: AbortSignal): void {
  const next = (_: number, m: VideoFrameCallbackMetadata): void => {
    if (signal.aborted) return;
    video.requestVideoFrameCallback(next);
    const capture = captureOf(m);
    if (capture === undefined) return;
    seen();
    void createImageBitmap(video).then((bitmap) => (signal.aborted ? bitmap.close() : take({ capture, bitmap, arrived: performance.now() })), () => undefined);
  };
  video.requestVideoFrameCallback(next);
}

const element = (): HTMLVideoElement => Object.assign(document.createElement("video"), { muted: true, autoplay: true, playsInline: true });

/** play shows a camera in one way until signal ends, at most rate pictures a second by MJPEG. It fails when no picture came
 * in time, or none any more. */
export async function play(camera: string, way: Way, take: Take, signal: AbortSignal, rate = 15): Promise<void> {
  const mine = new AbortController();
  const end = (): void => mine.abort();
  signal.addEventListener("abort", end, { once: true });
  try {
    await new Promise<void>((done, fail) => {
      let timer = setTimeout(() => fail(new Error(`no picture within ${firstPicture / 1000} s`)), firstPicture);
      const seen = (): void => {
        clearTimeout(timer);
        timer = setTimeout(() => fail(new Error(`no picture for ${silence / 1000} s`)), silence);
      };
      mine.signal.addEventListener("abort", () => {
        clearTimeout(timer);
        done();
      });
      ({ whep, fmp4, mjpeg })[way](camera, take, seen, fail, mine.signal, rate).catch(fail);
    });
  } finally {
    mine.abort();
    signal.removeEventListener("abort", end);
  }
}

/** Captures remembers the capture times of the newest pictures by a number of theirs. */
class Captures {
  private readonly known = new Map<number, number>();

  set(key: number, capture: number): void {
    this.known.set(key, capture);
    if (this.known.size > 600) this.known.delete(this.known.keys().next().value as number);
  }

  get(key: number, within = 0): number | undefined {
    const exact = this.known.get(key);
    if (exact !== undefined || !within) return exact;
    for (let d = 1; d <= within; d++) {
      const near = this.known.get(key - d) ?? this.known.get(key + d);
      if (near !== undefined) return near;
    }
    return undefined;
  }
}

async function whep(camera: string, take: Take, seen: () => void, fail: (e: Error) => void, signal: AbortSignal): Promise<void> {
  const peer = new RTCPeerConnection();
  const video = element();
  const captures = new Captures();
  let session: string | null = null;
  const close = (): void => {
    video.srcObject = null;
    // The box ends the session; after that there is nothing to end.
    if (session) void fetch(session, { method: "DELETE", headers: { "X-Vedette": "page" }, keepalive: true }).finally(() => peer.close()).catch(() => undefined);
    else peer.close();
  };
  signal.addEventListener("abort", close);
  peer.addTransceiver("video", { direction: "recvonly" });
  peer.createDataChannel("captures").onmessage = ({ data }) => {
    const m = JSON.parse(data as string) as { rtp: number; capture: number; type?: string; message?: string };
    if (m.type === "error") fail(new Error(m.message));
    else captures.set(m.rtp, m.capture);
  };
  peer.ontrack = ({ track }) => {
    video.srcObject = new MediaStream([track]);
    void video.play().catch(() => undefined);
  };
  peer.onconnectionstatechange = () => peer.connectionState === "failed" && fail(new Error("the WebRTC connection failed"));
  watch(video, take, (m) => (m.rtpTimestamp === undefined ? undefined : captures.get(m.rtpTimestamp)), seen, signal);
  await peer.setLocalDescription();
  await new Promise<void>((done) => {
    if (peer.iceGatheringState === "complete") done();
    peer.onicegatheringstatechange = () => peer.iceGatheringState === "complete" && done();
  });
  const answer = await fetch(`/live/${camera}/whep`, { method: "POST", headers: { "Content-Type": "application/sdp", "X-Vedette": "page" }, body: peer.localDescription!.sdp, signal });
  if (answer.status !== 201) throw await refusalOf(answer);
  const text = await answer.text();
  session = answer.headers.get("Location");
  if (signal.aborted) return close();
  await peer.setRemoteDescription({ type: "answer", sdp: text });
}

async function fmp4(camera: string, take: Take, seen: () => void, fail: (e: Error) => void, signal: AbortSignal): Promise<void> {
  const video = element();
  const source = new MediaSource();
  const address = URL.createObjectURL(source);
  video.src = address;
  await new Promise<void>((open) => source.addEventListener("sourceopen", () => open(), { once: true }));
  URL.revokeObjectURL(address);
  const captures = new Captures(); // by presentation time in milliseconds
  const waiting: (ArrayBuffer | string)[] = []; // a string: the MIME type of what follows
  let buffer: SourceBuffer | undefined;
  const feed = (): void => {
    if (!buffer || buffer.updating || signal.aborted) return;
    try {
      const b = video.buffered;
      // What was shown is let go; what came while the page was asleep is skipped.
      if (b.length && video.currentTime - b.start(0) > 20) buffer.remove(0, video.currentTime - 5);
      else {
        if (typeof waiting[0] === "string") buffer.changeType(waiting.shift() as string);
        if (waiting.length) buffer.appendBuffer(waiting.shift() as ArrayBuffer);
      }
      const end = b.length ? b.end(b.length - 1) : 0;
      if (b.length && (video.currentTime < b.start(b.length - 1) || end - video.currentTime > 1.5)) video.currentTime = Math.max(b.start(b.length - 1), end - 0.15);
      if (video.paused) void video.play().catch(() => undefined);
    } catch (e) {
      fail(e as Error);
    }
  };
  const socket = new WebSocket(`${location.origin.replace(/^http/, "ws")}/live/${camera}/fmp4`);
  socket.binaryType = "arraybuffer";
  signal.addEventListener("abort", () => {
    socket.onclose = null;
    socket.close();
    video.removeAttribute("src");
    video.load();
  });
  socket.onclose = () => fail(new Error("the stream ended"));
  video.onerror = () => fail(new Error(video.error?.message ?? "the video cannot be played"));
  socket.onmessage = ({ data }: MessageEvent<string | ArrayBuffer>) => {
    if (typeof data === "string") {
      const m = JSON.parse(data) as { type: string; mime: string; message?: string };
      if (m.type === "error") return fail(new Error(m.message));
      if (!MediaSource.isTypeSupported(m.mime)) return fail(new Error(`this browser does not play ${m.mime}`));
      if (buffer) waiting.push(m.mime);
      else {
        buffer = source.addSourceBuffer(m.mime);
        buffer.onupdateend = feed;
      }
      return;
    }
    const head = new DataView(data, 0, 16);
    if (head.getFloat64(8)) captures.set(Math.round(head.getFloat64(0) * 1000), head.getFloat64(8));
    waiting.push(data.slice(16));
    feed();
  };
  watch(video, take, (m) => captures.get(Math.round(m.mediaTime * 1000), 2), seen, signal);
}

/** mjpeg reads multipart/x-mixed-replace part by part: an <img> would show it too, but not tell when it was captured. */
async function mjpeg(camera: string, take: Take, seen: () => void, fail: (e: Error) => void, signal: AbortSignal, rate: number): Promise<void> {
  const answer = await fetch(`/live/${camera}/mjpeg?rate=${rate}`, { signal });
  if (!answer.ok || !answer.body) throw await refusalOf(answer);
  const incoming = new Incoming(answer.body.getReader());
  let head = new Headers();
  for (let line = await incoming.line(); line !== undefined; line = await incoming.line()) {
    const colon = line.indexOf(":");
    if (colon > 0) head.set(line.slice(0, colon), line.slice(colon + 1));
    const length = Number(head.get("Content-Length"));
    if (line || !length) continue; // a boundary, a header, or the empty line before a boundary
    const jpeg = await incoming.take(length);
    const capture = millis(head.get("X-Vedette-Capture-Time") ?? "");
    head = new Headers();
    if (!jpeg) break;
    const bitmap = await createImageBitmap(new Blob([jpeg as BlobPart], { type: "image/jpeg" }));
    if (signal.aborted) return bitmap.close();
    seen();
    take({ capture, bitmap, arrived: performance.now() });
  }
  fail(new Error("the stream ended"));
}
