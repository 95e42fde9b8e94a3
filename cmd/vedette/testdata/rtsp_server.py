"""An RTSP server that nobody here wrote: serves the GStreamer pipeline given as the argument on /stream.

With a second argument, a file with a certificate and its key (PEM), by RTSPS with SRTP alone.
Prints the port it listens on, and serves until its standard input ends.
"""

import sys
import threading

import gi

gi.require_version("Gst", "1.0")
gi.require_version("GstRtsp", "1.0")
gi.require_version("GstRtspServer", "1.0")
from gi.repository import Gio, GLib, Gst, GstRtsp, GstRtspServer  # noqa: E402

Gst.init(None)
factory = GstRtspServer.RTSPMediaFactory()
factory.set_launch("( " + sys.argv[1] + " )")
factory.set_shared(True)
server = GstRtspServer.RTSPServer()
server.set_address("127.0.0.1")
server.set_service("0")
if len(sys.argv) > 2:
    factory.set_profiles(GstRtsp.RTSPProfile.SAVP)
    anybody, may = GstRtspServer.RTSPToken(), GstRtspServer.RTSPPermissions()
    anybody.set_string("media.factory.role", "anybody")
    for right in "media.factory.access", "media.factory.construct":
        may.add_permission_for_role("anybody", right, True)
    factory.set_permissions(may)
    auth = GstRtspServer.RTSPAuth()
    auth.set_tls_certificate(Gio.TlsCertificate.new_from_file(sys.argv[2]))
    auth.set_default_token(anybody)
    server.set_auth(auth)
server.get_mount_points().add_factory("/stream", factory)
server.attach(None)
print(server.get_bound_port(), flush=True)
loop = GLib.MainLoop()


def wait():
    sys.stdin.read()
    loop.quit()


threading.Thread(target=wait, daemon=True).start()
loop.run()
