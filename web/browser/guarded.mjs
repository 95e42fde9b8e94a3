// A camera with a password: asks for Basic credentials, and passes everything else on to the demo camera.
import { once } from "node:events";
import { connect, createServer } from "node:net";

/** guard listens in front of the camera at target (host:port) and returns its own host:port and what ends it. */
export async function guard(target, user, password) {
  const right = "Basic " + Buffer.from(`${user}:${password}`).toString("base64");
  const [host, port] = target.split(":");
  const sockets = new Set();
  const server = createServer((client) => {
    const camera = connect(Number(port), host);
    for (const s of [client, camera]) {
      sockets.add(s);
      s.on("error", () => s.destroy());
      s.on("close", () => {
        sockets.delete(s);
        client.destroy();
        camera.destroy();
      });
    }
    camera.pipe(client);
    let pending = Buffer.alloc(0);
    client.on("data", (d) => {
      pending = Buffer.concat([pending, d]);
      for (;;) {
        if (pending[0] === 0x24) { // interleaved RTCP: $, channel, length
          if (pending.length < 4 || pending.length < 4 + pending.readUInt16BE(2)) return;
          const n = 4 + pending.readUInt16BE(2);
          camera.write(pending.subarray(0, n));
          pending = pending.subarray(n);
          continue;
        }
        const end = pending.indexOf("\r\n\r\n");
        if (end < 0) return;
        const request = pending.subarray(0, end + 4);
        pending = pending.subarray(end + 4);
        const head = request.toString("latin1");
        const given = /^Authorization: *(.*)\r$/im.exec(head)?.[1];
        if (given === right || head.startsWith("OPTIONS")) camera.write(request);
        else client.write(`RTSP/1.0 401 Unauthorized\r\nCSeq: ${/^CSeq: *(\d+)/im.exec(head)?.[1] ?? 0}\r\nWWW-Authenticate: Basic realm="camera"\r\n\r\n`);
      }
    });
  }).listen(0, "127.0.0.1");
  await once(server, "listening");
  return {
    address: `127.0.0.1:${server.address().port}`,
    stop: async () => {
      server.close();
      for (const s of sockets) s.destroy();
      await once(server, "close");
    },
  };
}
