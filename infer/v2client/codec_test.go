package v2client

import (
	"bytes"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/vedette/vedette/api/inference"
	"github.com/vedette/vedette/internal/grpcpool"
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

func FuzzStreamedResponsesAreReadAsProtobufReadsThem(f *testing.F) {
	one := &inference.ModelInferResponse{ModelName: "m", RawOutputContents: [][]byte{{1, 2}, {}}}
	for _, m := range []*inference.ModelStreamInferResponse{{}, {ErrorMessage: "no"}, {InferResponse: one}, {ErrorMessage: "no", InferResponse: one}} {
		b, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
		f.Add(append(b, b...)) // what is there twice is merged
	}
	f.Add([]byte{0x12, 9})
	f.Fuzz(func(t *testing.T, b []byte) {
		want, got := new(inference.ModelStreamInferResponse), new(inference.ModelStreamInferResponse)
		wantErr, err := proto.Unmarshal(b, want), unmarshalStreamed(b, got)
		if (err == nil) != (wantErr == nil) {
			t.Fatalf("got %v, want %v", err, wantErr)
		}
		if err == nil && !proto.Equal(got, want) {
			t.Errorf("got %v, want %v", got, want)
		}
	})
}

func FuzzPiecesAreTheRequest(f *testing.F) {
	f.Add("m", "id", []byte{1, 2, 3}, uint16(inPlace))
	f.Add("", "", []byte(nil), uint16(0))
	f.Add("model", "7", make([]byte, inPlace-1), uint16(9000))
	f.Fuzz(func(t *testing.T, model, id string, first []byte, size uint16) {
		m := &inference.ModelInferRequest{ModelName: model, Id: id, RawInputContents: [][]byte{first, make([]byte, size), {5}}}
		want, err := newCodec(new(grpcpool.Pool)).Marshal(m)
		if err != nil {
			return // no valid UTF-8
		}
		pieces, err := newCodec(new(grpcpool.Pool)).Marshal(&question{m})
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(pieces.Materialize(), want.Materialize()) {
			t.Error("the pieces are another message than the whole")
		}
	})
}
