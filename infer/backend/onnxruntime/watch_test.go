package onnxruntime

import (
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/vedette/vedette/api/inference"
	"github.com/vedette/vedette/infer/backend"
	"github.com/vedette/vedette/infer/tensor"
)

// message writes a protocol buffer by hand: fields are numbers, texts or messages.
func message(fields ...func([]byte) []byte) []byte {
	var b []byte
	for _, f := range fields {
		b = f(b)
	}
	return b
}

func number(field protowire.Number, v uint64) func([]byte) []byte {
	return func(b []byte) []byte {
		return protowire.AppendVarint(protowire.AppendTag(b, field, protowire.VarintType), v)
	}
}

func word(field protowire.Number, v string) func([]byte) []byte {
	return func(b []byte) []byte {
		return protowire.AppendString(protowire.AppendTag(b, field, protowire.BytesType), v)
	}
}

func within(field protowire.Number, fields ...func([]byte) []byte) func([]byte) []byte {
	return func(b []byte) []byte {
		return protowire.AppendBytes(protowire.AppendTag(b, field, protowire.BytesType), message(fields...))
	}
}

// Element types of ONNX.
const (
	onnxFloat, onnxInt64, onnxBool = 1, 7, 9
)

// value is a ValueInfoProto with the dimensions given.
func value(field protowire.Number, name string, elem uint64, dims ...uint64) func([]byte) []byte {
	shape := []func([]byte) []byte{}
	for _, d := range dims {
		shape = append(shape, within(1, number(1, d)))
	}
	return within(field, word(1, name), within(2, within(1, number(1, elem), within(2, shape...))))
}

// endless is a graph that adds its input to itself for ages.
func endless() []byte {
	body := within(6,
		within(1, word(1, "go"), word(2, "on"), word(4, "Identity")),
		within(1, word(1, "v"), word(1, "v"), word(2, "w"), word(4, "Add")),
		word(2, "body"),
		value(11, "i", onnxInt64), value(11, "go", onnxBool), value(11, "v", onnxFloat, 1),
		value(12, "on", onnxBool), value(12, "w", onnxFloat, 1),
	)
	return message(
		number(1, 7), within(8, number(2, 13)),
		within(7,
			within(1, word(1, "times"), word(1, "go"), word(1, "X"), word(2, "Y"), word(4, "Loop"), within(5, word(1, "body"), body, number(20, 5))),
			word(2, "endless"),
			within(5, number(2, onnxInt64), number(7, math.MaxInt64), word(8, "times")),
			within(5, number(2, onnxBool), number(5, 1), word(8, "go")),
			value(11, "X", onnxFloat, 1), value(12, "Y", onnxFloat, 1),
		),
	)
}

// impatient is an owner that goes away.
type impatient struct {
	*owner

	gone atomic.Bool
}

func (o *impatient) Cancelled(*backend.Job) bool { return o.gone.Load() }

func TestARunWhoseCallersHaveGoneIsTerminatedAndTheNextOneRuns(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "model.onnx"), endless(), 0o600); err != nil {
		t.Fatal(err)
	}
	m := &backend.Model{
		Name: "endless", Version: 1, VersionDir: dir, Config: &inference.ModelConfig{Name: "endless", DefaultModelFilename: "model.onnx"},
		Logger: slog.New(slog.DiscardHandler),
	}
	pool := &tensor.Pool{}
	b := New(Config{Library: library(t), Pool: pool})
	if err := b.Complete(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	in, err := b.NewInstance(t.Context(), m, backend.Placement{Name: "endless_0", CPUThreads: 1, GPU: -1})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := in.Close(); err != nil {
			t.Error(err)
		}
	}()
	for range 2 { // once terminated, it can be run again
		o := &impatient{owner: newOwner(pool)}
		j := job(o.owner, 1, floats("X", []int64{1}, 1))
		j.Owner = o
		leave := time.AfterFunc(3*lookEvery/2, func() { o.gone.Store(true) })
		in.Execute(t.Context(), []*backend.Job{j}) // for ever, if nothing ends it
		if leave.Stop() {
			t.Fatalf("it ended by itself: %v", o.err[j])
		}
		if o.err[j] == nil {
			t.Error("a run that was terminated has an answer")
		}
	}
}
