package rtsp

import (
	"bytes"
	"regexp"

	"github.com/vedette/vedette/ingest"
	"github.com/vedette/vedette/ingest/packetdump"
)

// show shows the tap a packet as it would be written again, or a message of the dialogue without its secrets.
func (s *session) show(kind packetdump.Kind, m interface{ Marshal() ([]byte, error) }) {
	b, err := m.Marshal()
	if err != nil {
		return
	}
	if kind == packetdump.Request || kind == packetdump.Answer {
		b = blank(b, s.cfg.Camera)
	}
	s.cfg.Tap.Packet(kind, s.cfg.Now().Wall, b)
}

var authorisation = regexp.MustCompile(`(?im)^((?:Proxy-)?Authorization:).*?(\r?)$`)

// blank takes the credentials out of a message, and what could be compared with guesses of them.
func blank(message []byte, c ingest.Camera) []byte {
	head, body, found := bytes.Cut(message, []byte("\r\n\r\n"))
	head = authorisation.ReplaceAll(head, []byte("$1 ***$2"))
	if found {
		head = append(append(head, "\r\n\r\n"...), body...)
	}
	return []byte(redact(string(head), c))
}
