package server_test

import (
	"encoding/binary"
	"testing"

	"github.com/vedette/vedette/api/inference"
)

func TestS12DecoupledModelOverTheStream(t *testing.T) {
	models := testModels()
	models["square/config.pbtxt"] = `backend: "square"
input [ { name: "IN" data_type: TYPE_INT32 dims: [ 1 ] } ]
output [ { name: "OUT" data_type: TYPE_INT32 dims: [ 1 ] } ]
model_transaction_policy { decoupled: true }
`
	models["square/1/keep"] = ""
	r := start(t, "--model-repository", repository(t, models))
	client := dial(t, r.at("gRPC"))
	stream, err := client.ModelStreamInfer(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	req := &inference.ModelInferRequest{
		ModelName: "square", Id: "q",
		Parameters: map[string]*inference.InferParameter{
			"triton_enable_empty_final_response": {ParameterChoice: &inference.InferParameter_BoolParam{BoolParam: true}},
		},
		Inputs:           []*inference.ModelInferRequest_InferInputTensor{{Name: "IN", Datatype: "INT32", Shape: []int64{1}}},
		RawInputContents: [][]byte{{3, 0, 0, 0}},
	}
	if err := stream.Send(req); err != nil {
		t.Fatal(err)
	}
	answers := 0
	for {
		m, err := stream.Recv()
		if err != nil || m.GetErrorMessage() != "" {
			t.Fatal(m, err)
		}
		resp := m.GetInferResponse()
		if len(resp.GetOutputs()) > 0 {
			answers++
			if got := binary.LittleEndian.Uint32(resp.GetRawOutputContents()[0]); got != 3 {
				t.Errorf("got %d", got)
			}
		}
		if resp.GetParameters()["triton_final_response"].GetBoolParam() {
			break
		}
	}
	if answers != 3 {
		t.Errorf("%d answers", answers)
	}
	if code, body := fetch(t, "POST", "http://"+r.at("HTTP")+"/v2/models/square/infer", "{}"); code != 501 {
		t.Error(code, body)
	}
}
