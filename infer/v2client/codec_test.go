package v2client

import (
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/vedette/vedette/api/inference"
)

func FuzzResponsesAreReadAsProtobufReadsThem(f *testing.F) {
	for _, m := range []*inference.ModelInferResponse{
		{},
		{
			ModelName: "m", ModelVersion: "1", Id: "x", RawOutputContents: [][]byte{{1, 2}, {}, {3}},
			Outputs: []*inference.ModelInferResponse_InferOutputTensor{{Name: "O", Datatype: "UINT8", Shape: []int64{2}}},
		},
	} {
		b, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Add([]byte{0x32, 9})
	f.Fuzz(func(t *testing.T, b []byte) {
		want, got := new(inference.ModelInferResponse), new(inference.ModelInferResponse)
		wantErr, err := proto.Unmarshal(b, want), unmarshalResponse(b, got)
		if (err == nil) != (wantErr == nil) {
			t.Fatalf("got %v, want %v", err, wantErr)
		}
		if err == nil && !proto.Equal(got, want) {
			t.Errorf("got %v, want %v", got, want)
		}
	})
}
