"""An RTSP server that nobody here wrote: serves the GStreamer pipeline given as the argument on /stream.

Prints the port it listens on, and serves until its standard input ends.
"""

import sys
import threading

import gi

gi.require_version("Gst", "1.0")
gi.require_version("GstRtspServer", "1.0")
from gi.repository import GLib, Gst, GstRtspServer  # noqa: E402

Gst.init(None)
factory = GstRtspServer.RTSPMediaFactory()
factory.set_launch("( " + sys.argv[1] + " )")
factory.set_shared(True)
server = GstRtspServer.RTSPServer()
server.set_address("127.0.0.1")
server.set_service("0")
server.get_mount_points().add_factory("/stream", factory)
server.attach(None)
print(server.get_bound_port(), flush=True)
loop = GLib.MainLoop()


def wait():
    sys.stdin.read()
    loop.quit()


threading.Thread(target=wait, daemon=True).start()
loop.run()
