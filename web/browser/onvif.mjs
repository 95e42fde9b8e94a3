// A camera that answers ONVIF's search on the loopback, and tells its one stream to who knows user and password.
import { createHash } from "node:crypto";
import { createSocket } from "node:dgram";
import { once } from "node:events";
import { createServer } from "node:http";

const envelope = (body) => `<?xml version="1.0" encoding="UTF-8"?><s:Envelope xmlns:s="http://www.w3.org/2003/05/soap-envelope" xmlns:tds="http://www.onvif.org/ver10/device/wsdl" xmlns:trt="http://www.onvif.org/ver10/media/wsdl" xmlns:tt="http://www.onvif.org/ver10/schema"><s:Body>${body}</s:Body></s:Envelope>`;

/** knows reports whether a request has the right WS-Security UsernameToken, its password digested. */
function knows(request, user, password) {
  const part = (name) => new RegExp(`<(?:\\w+:)?${name}\\b[^>]*>([^<]*)<`).exec(request)?.[1] ?? "";
  const digest = createHash("sha1").update(Buffer.concat([Buffer.from(part("Nonce"), "base64"), Buffer.from(part("Created") + password)])).digest("base64");
  return part("Username") === user && part("Password") === digest;
}

/** device serves a camera whose stream is at uri, its clock an hour ahead; multicast tells whether it could join the group of WS-Discovery. */
export async function device(uri, user, password) {
  let address = "";
  const server = createServer((req, res) => {
    let body = "";
    req.on("data", (d) => (body += d));
    req.on("end", () => {
      const answers = {
        GetCapabilities: () => `<tds:GetCapabilitiesResponse><tds:Capabilities><tt:Media><tt:XAddr>${address}/onvif/media</tt:XAddr></tt:Media></tds:Capabilities></tds:GetCapabilitiesResponse>`,
        GetSystemDateAndTime: () => {
          const t = new Date(Date.now() + 3600e3);
          return `<tds:GetSystemDateAndTimeResponse><tds:SystemDateAndTime><tt:UTCDateTime><tt:Time><tt:Hour>${t.getUTCHours()}</tt:Hour><tt:Minute>${t.getUTCMinutes()}</tt:Minute><tt:Second>${t.getUTCSeconds()}</tt:Second></tt:Time><tt:Date><tt:Year>${t.getUTCFullYear()}</tt:Year><tt:Month>${t.getUTCMonth() + 1}</tt:Month><tt:Day>${t.getUTCDate()}</tt:Day></tt:Date></tt:UTCDateTime></tds:SystemDateAndTime></tds:GetSystemDateAndTimeResponse>`;
        },
        GetDeviceInformation: () => "<tds:GetDeviceInformationResponse><tds:Manufacturer>Acme</tds:Manufacturer><tds:Model>C-1</tds:Model></tds:GetDeviceInformationResponse>",
        GetProfiles: () => '<trt:GetProfilesResponse><trt:Profiles token="p1"><tt:Name>sub</tt:Name><tt:VideoEncoderConfiguration><tt:Encoding>H264</tt:Encoding><tt:Resolution><tt:Width>640</tt:Width><tt:Height>360</tt:Height></tt:Resolution><tt:RateControl><tt:FrameRateLimit>15</tt:FrameRateLimit></tt:RateControl></tt:VideoEncoderConfiguration></trt:Profiles></trt:GetProfilesResponse>',
        GetStreamUri: () => `<trt:GetStreamUriResponse><trt:MediaUri><tt:Uri>${uri}</tt:Uri></trt:MediaUri></trt:GetStreamUriResponse>`,
      };
      const call = Object.keys(answers).find((a) => body.includes(a));
      const open = call === "GetCapabilities" || call === "GetSystemDateAndTime";
      if (!call || (!open && !knows(body, user, password))) {
        res.writeHead(400).end(envelope("<s:Fault><s:Code><s:Subcode><s:Value>ter:NotAuthorized</s:Value></s:Subcode></s:Code></s:Fault>"));
      } else res.end(envelope(answers[call]()));
    });
  }).listen(0, "127.0.0.1");
  await once(server, "listening");
  address = `http://127.0.0.1:${server.address().port}`;
  const search = createSocket({ type: "udp4", reuseAddr: true });
  search.on("message", (m, from) => m.includes("NetworkVideoTransmitter") && search.send(
    `<Envelope><Body><ProbeMatches><ProbeMatch><EndpointReference><Address>urn:uuid:5b0c</Address></EndpointReference><Scopes>onvif://www.onvif.org/name/Back%20Gate</Scopes><XAddrs>${address}/onvif/device_service</XAddrs></ProbeMatch></ProbeMatches></Body></Envelope>`, from.port, from.address));
  const multicast = await new Promise((done) => {
    search.on("error", () => done(false));
    search.bind(3702, "239.255.255.250", () => {
      try {
        search.addMembership("239.255.255.250", "127.0.0.1");
        done(true);
      } catch {
        done(false);
      }
    });
  });
  return {
    address: address.replace("http://", ""), multicast,
    stop: async () => {
      search.close();
      server.closeAllConnections();
      server.close();
      await once(server, "close");
    },
  };
}
