#!/usr/bin/env python3
"""A model in Python behind the "remote" backend: the v2 protocol over HTTP, with the standard library alone.

    python3 server.py --port 8100

prints the address it listens at. The model "median" answers FP32 [batch, n] with FP32 [batch, 1].
"""
import argparse
import array
import json
import statistics
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

HEADER = "Inference-Header-Content-Length"


def median(rows):
    return [statistics.median(row) for row in rows]


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, *args):
        pass

    def answer(self, status, body, json_length=None):
        self.send_response(status)
        self.send_header("Content-Type", "application/json" if json_length is None else "application/octet-stream")
        self.send_header("Content-Length", str(len(body)))
        if json_length is not None:
            self.send_header(HEADER, str(json_length))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        if self.path in ("/v2/health/live", "/v2/health/ready", "/v2/models/median/ready"):
            self.answer(200, b"{}")
        elif self.path == "/v2/models/median":
            tensors = {"inputs": [{"name": "IN", "datatype": "FP32", "shape": [-1, -1]}],
                       "outputs": [{"name": "OUT", "datatype": "FP32", "shape": [-1, 1]}]}
            self.answer(200, json.dumps({"name": "median", "versions": ["1"], "platform": "python", **tensors}).encode())
        else:
            self.answer(404, b'{"error":"there is nothing here"}')

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        try:
            if self.path.split("/versions/")[0].removesuffix("/infer") != "/v2/models/median":
                self.answer(404, json.dumps({"error": "there is no model but median"}).encode())
                return
            length = int(self.headers.get(HEADER, len(body)))
            request, tail = json.loads(body[:length]), body[length:]
            tensor = request["inputs"][0]
            batch, n = tensor["shape"]
            if n == 0:
                raise ValueError("no numbers have no median")
            numbers = array.array("f", tail[:4 * batch * n])
            values = median([numbers[i * n:(i + 1) * n] for i in range(batch)])
        except (KeyError, ValueError) as err:
            self.answer(400, json.dumps({"error": str(err)}).encode())
            return
        out = array.array("f", values).tobytes()
        head = json.dumps({"model_name": "median", "model_version": "1", "id": request.get("id", ""), "outputs": [
            {"name": "OUT", "datatype": "FP32", "shape": [batch, 1], "parameters": {"binary_data_size": len(out)}}]}).encode()
        self.answer(200, head + out, len(head))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, default=8100)
    server = ThreadingHTTPServer(("127.0.0.1", parser.parse_args().port), Handler)
    print("http://127.0.0.1:%d" % server.server_address[1], flush=True)
    server.serve_forever()
