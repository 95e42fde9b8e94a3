package ingestv1

import (
	"fmt"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"

	"github.com/vedette/vedette/api/frame"
)

// Contract returns the hash both ends compare when they meet.
func Contract() string {
	file := protodesc.ToFileDescriptorProto(File_ingest_v1_ingest_proto)
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(file)
	if err != nil {
		// A descriptor that was parsed can be written; a wrong hash would only refuse to talk.
		return fmt.Sprintf("unknown: %v", err)
	}
	return frame.Contract(b)
}
