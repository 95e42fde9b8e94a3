package adopt

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/vedette/vedette/infer/detect"
)

// Field numbers of the ONNX format, and its number for half floats.
const (
	modelGraph       = 7
	graphNode        = 1
	graphInitializer = 5
	nodeOp           = 4
	nodeAttribute    = 5
	attributeTensor  = 5
	tensorType       = 2
	half             = 10
)

// precision tells in how many bits a model calculates: "int8" when it holds quantised operators, "fp16" when most of its
// weights are half floats, else "fp32".
func precision(file string) (string, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("the model's file: %w", err)
	}
	quantised, halves, others := false, 0, 0
	weights := func(t []byte) error {
		typ := uint64(0)
		err := fields(t, func(n protowire.Number, value uint64, _ []byte) error {
			if n == tensorType {
				typ = value
			}
			return nil
		})
		if typ == half {
			halves += len(t)
		} else {
			others += len(t)
		}
		return err
	}
	err = fields(b, func(n protowire.Number, _ uint64, graph []byte) error {
		if n != modelGraph {
			return nil
		}
		return fields(graph, func(n protowire.Number, _ uint64, part []byte) error {
			switch n {
			case graphInitializer:
				return weights(part)
			case graphNode:
				return fields(part, func(n protowire.Number, _ uint64, field []byte) error {
					switch n {
					case nodeOp:
						op := string(field)
						quantised = quantised || strings.HasPrefix(op, "QLinear") || strings.HasSuffix(op, "QuantizeLinear") ||
							strings.HasSuffix(op, "quantizeLinear") || op == "DequantizeLinear" || strings.HasSuffix(op, "Integer") || op == "MatMulNBits"
					case nodeAttribute:
						return fields(field, func(n protowire.Number, _ uint64, t []byte) error {
							if n == attributeTensor && t != nil {
								return weights(t)
							}
							return nil
						})
					default:
					}
					return nil
				})
			default:
			}
			return nil
		})
	})
	switch {
	case err != nil:
		return "", fmt.Errorf("%s: %w", file, err)
	case quantised:
		return "int8", nil
	case halves > others:
		return "fp16", nil
	}
	return "fp32", nil
}

var errFormat = errors.New("it is no ONNX file")

// fields calls f for every field of a message: with the number of a varint, or with the bytes of what has a length.
func fields(msg []byte, f func(n protowire.Number, value uint64, content []byte) error) error {
	for len(msg) > 0 {
		n, typ, tag := protowire.ConsumeTag(msg)
		if tag < 0 {
			return errFormat
		}
		size := protowire.ConsumeFieldValue(n, typ, msg[tag:])
		if size < 0 {
			return errFormat
		}
		var value uint64
		var content []byte
		switch typ {
		case protowire.VarintType:
			value, _ = protowire.ConsumeVarint(msg[tag:])
		case protowire.BytesType:
			content, _ = protowire.ConsumeBytes(msg[tag:])
		default:
		}
		if err := f(n, value, content); err != nil {
			return err
		}
		msg = msg[tag+size:]
	}
	return nil
}

// compare refuses a model of lower precision that does not see what its reference sees.
func (a *adoption) compare(ctx context.Context) error {
	if a.report.Precision == "fp32" {
		return nil
	}
	if a.cfg.Reference == "" {
		if a.cfg.Unchecked {
			return nil
		}
		return fmt.Errorf("it calculates in %s, which may have cost it its eyesight: give the full model to compare it with, or say that it is to be used unchecked", a.report.Precision)
	}
	work, err := os.MkdirTemp(a.cfg.Repository, ".adopt-*")
	if err != nil {
		return fmt.Errorf("write to the model repository: %w", err)
	}
	defer func() { _ = os.RemoveAll(work) }()
	ref := &adoption{cfg: a.cfg, work: work, report: &Report{}}
	ref.cfg.File = a.cfg.Reference
	if err := ref.copyFile(); err != nil {
		return fmt.Errorf("the reference: %w", err)
	}
	if err := ref.try(ctx); err != nil {
		return fmt.Errorf("the reference: %w", err)
	}
	var agreement detect.Agreement
	for i := range ref.seen {
		agreement.Add(plain(ref.seen[i]), plain(a.seen[i]))
	}
	a.report.Agreement = agreement.Share()
	if err := agreement.Check(); err != nil {
		return fmt.Errorf("it calculates in %s, which has cost it its eyesight: %w", a.report.Precision, err)
	}
	return nil
}

// plain leaves the labels off.
func plain(seen []Box) []detect.Box {
	boxes := make([]detect.Box, len(seen))
	for i, b := range seen {
		boxes[i] = b.Box
	}
	return boxes
}
