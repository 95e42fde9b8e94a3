// Live video as a browser gets it: each function runs in a page of the dashboard and tells what was seen of a camera.

/** fmp4 plays a camera by MediaSource until so many pictures were presented. */
export const fmp4 = (page, camera, pictures) => page.evaluate(async ([camera, pictures]) => {
  const video = Object.assign(document.createElement("video"), { muted: true });
  document.body.append(video);
  const source = new MediaSource();
  video.src = URL.createObjectURL(source);
  await new Promise((open) => source.addEventListener("sourceopen", open, { once: true }));
  const ws = new WebSocket(`${location.origin.replace("http", "ws")}/live/${camera}/fmp4`);
  ws.binaryType = "arraybuffer";
  const captures = new Map(); // by presentation time in µs
  const queue = [];
  let buffer, stream;
  const feed = () => {
    if (buffer && !buffer.updating && queue.length) buffer.appendBuffer(queue.shift());
  };
  try {
    return await new Promise((done, fail) => {
      const seen = [];
      setTimeout(() => fail(new Error(`only ${seen.length} pictures within 60 s; ${captures.size} came; error ${video.error?.message}`)), 60000);
      ws.onclose = (e) => fail(new Error(`closed: ${e.code} ${e.reason}`));
      ws.onmessage = ({ data }) => {
        if (typeof data === "string") {
          const m = JSON.parse(data);
          if (m.type === "error") return fail(new Error(data));
          stream = m;
          if (!MediaSource.isTypeSupported(m.mime)) return fail(new Error(`${m.mime} is not supported`));
          buffer ??= source.addSourceBuffer(m.mime);
          buffer.onupdateend = feed;
          return;
        }
        const head = new DataView(data, 0, 16);
        if (head.getFloat64(8)) captures.set(Math.round(head.getFloat64(0) * 1e6), head.getFloat64(8));
        queue.push(data.slice(16));
        feed();
        const b = video.buffered;
        if (b.length && (video.paused || video.currentTime < b.end(b.length - 1) - 1)) {
          video.currentTime = b.end(b.length - 1) - 0.1; // what was before one came
          video.play().catch(() => {});
        }
      };
      const next = (_, shown) => {
        const at = Math.round(shown.mediaTime * 1e6);
        const near = [...captures.keys()].find((k) => Math.abs(k - at) < 1000);
        seen.push({ capture: captures.get(near), width: shown.width, height: shown.height, now: Date.now() });
        if (seen.length < pictures) video.requestVideoFrameCallback(next);
        else done({ stream, seen });
      };
      video.requestVideoFrameCallback(next);
    });
  } finally {
    ws.onclose = null;
    ws.close();
    video.remove();
  }
}, [camera, pictures]);

/** whep plays a camera by WebRTC until so many pictures were presented. */
export const whep = (page, camera, pictures) => page.evaluate(async ([camera, pictures]) => {
  const video = Object.assign(document.createElement("video"), { muted: true, autoplay: true });
  document.body.append(video);
  const peer = new RTCPeerConnection();
  peer.addTransceiver("video", { direction: "recvonly" });
  const captures = new Map(); // by RTP time
  let trouble = "";
  peer.createDataChannel("captures").onmessage = ({ data }) => {
    const m = JSON.parse(data);
    if (m.type === "error") trouble = data;
    else captures.set(m.rtp, m.capture);
  };
  peer.ontrack = ({ track }) => (video.srcObject = new MediaStream([track]));
  await peer.setLocalDescription();
  await new Promise((done) => {
    peer.onicegatheringstatechange = () => peer.iceGatheringState === "complete" && done();
    if (peer.iceGatheringState === "complete") done();
  });
  const path = `/live/${camera}/whep`;
  const answer = await fetch(path, { method: "POST", headers: { "Content-Type": "application/sdp", "X-Vedette": "1" }, body: peer.localDescription.sdp });
  if (answer.status !== 201) throw new Error(`${answer.status}: ${await answer.text()}`);
  const session = answer.headers.get("Location");
  try {
    await peer.setRemoteDescription({ type: "answer", sdp: await answer.text() });
    return await new Promise((done, fail) => {
      const seen = [];
      setTimeout(() => fail(new Error(`only ${seen.length} pictures within 60 s; ${peer.connectionState} ${trouble}; ${captures.size} captures`)), 60000);
      const next = (_, shown) => {
        seen.push({ capture: captures.get(shown.rtpTimestamp), width: shown.width, height: shown.height, now: Date.now() });
        if (seen.length < pictures) video.requestVideoFrameCallback(next);
        else done({ seen });
      };
      video.requestVideoFrameCallback(next);
    });
  } finally {
    peer.close();
    video.remove();
    await fetch(session, { method: "DELETE", headers: { "X-Vedette": "1" } });
  }
}, [camera, pictures]);
