package adopt

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
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

// What agreement asks for. A box counts when the one model is sure of it, and is found again where the other sees the
// same class, a little less sure, with half of the area in common.
const (
	sure, nearlySure = 0.4, 0.25
	overlap          = 0.5
	leastBoxes       = 5
	leastAgreement   = 0.85
)

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
	found, of := 0, 0
	for i := range ref.seen {
		n, m := again(ref.seen[i], a.seen[i])
		k, l := again(a.seen[i], ref.seen[i])
		found, of = found+n+k, of+m+l
	}
	if of < 2*leastBoxes {
		return fmt.Errorf("there is too little in the pictures to compare it with its reference (%d boxes): give pictures with more to see", of/2)
	}
	a.report.Agreement = float64(found) / float64(of)
	if a.report.Agreement < leastAgreement {
		return fmt.Errorf("it calculates in %s and agrees with its reference on %.0f %% of %d boxes; %.0f %% are asked for: quantising has cost it its eyesight",
			a.report.Precision, 100*a.report.Agreement, of, 100*leastAgreement)
	}
	return nil
}

// again counts the sure boxes of one model, and those of them that the other sees too.
func again(one, other []Box) (found, of int) {
	used := make([]bool, len(other))
	for _, b := range one {
		if b.Score < sure {
			continue
		}
		of++
		for k, o := range other {
			if !used[k] && o.Class == b.Class && o.Score >= nearlySure && iou(b, o) >= overlap {
				used[k] = true
				found++
				break
			}
		}
	}
	return found, of
}

func iou(a, b Box) float64 {
	w, h := math.Min(a.X2, b.X2)-math.Max(a.X1, b.X1), math.Min(a.Y2, b.Y2)-math.Max(a.Y1, b.Y1)
	if w <= 0 || h <= 0 {
		return 0
	}
	return w * h / ((a.X2-a.X1)*(a.Y2-a.Y1) + (b.X2-b.X1)*(b.Y2-b.Y1) - w*h)
}
