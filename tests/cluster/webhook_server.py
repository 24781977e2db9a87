"""A validating webhook for a pod: every VM must have an owner."""

import base64
import json
import ssl
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

PORT = 8443


class Hook(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        review = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        request = review["request"]
        obj = request["object"] or request["oldObject"] or {}
        owned = "owner" in (obj.get("metadata", {}).get("labels") or {})
        response = {"uid": request["uid"], "allowed": True}
        if self.path.startswith("/deny"):
            response |= {"allowed": owned, "status": {"code": 403, "message": f"{request['operation']}: machines need an owner"}}
        elif not owned:
            patch = [{"op": "add", "path": "/metadata/labels", "value": {"owner": "somebody"}}]
            response |= {"patchType": "JSONPatch", "patch": base64.b64encode(json.dumps(patch).encode()).decode()}
            response["warnings"] = ["machines should have an owner"]
        body = json.dumps({"apiVersion": review["apiVersion"], "kind": review["kind"], "response": response}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


if __name__ == "__main__":
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain("/tls/tls.crt", "/tls/tls.key")
    server = ThreadingHTTPServer(("", PORT), Hook)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    server.serve_forever()
