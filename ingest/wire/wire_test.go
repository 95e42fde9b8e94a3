package wire_test

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	ingestv1 "github.com/vedette/vedette/api/ingest/v1"
	"github.com/vedette/vedette/ingest"
	"github.com/vedette/vedette/ingest/wire"
)

// fill sets every field of a message to something that is not its zero value.
func fill(m protoreflect.Message, depth int) {
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		var v protoreflect.Value
		switch f.Kind() {
		case protoreflect.MessageKind:
			if f.IsMap() || depth > 4 {
				continue
			}
			if f.IsList() {
				list := m.Mutable(f).List()
				e := list.NewElement()
				fill(e.Message(), depth+1)
				list.Append(e)
				continue
			}
			fill(m.Mutable(f).Message(), depth+1)
			continue
		case protoreflect.StringKind:
			v = protoreflect.ValueOfString("x")
		case protoreflect.BoolKind:
			v = protoreflect.ValueOfBool(true)
		case protoreflect.DoubleKind:
			v = protoreflect.ValueOfFloat64(0.5)
		case protoreflect.Uint32Kind:
			v = protoreflect.ValueOfUint32(7)
		case protoreflect.Uint64Kind:
			v = protoreflect.ValueOfUint64(9)
		case protoreflect.Int64Kind:
			v = protoreflect.ValueOfInt64(int64(time.Hour))
		case protoreflect.EnumKind:
			v = protoreflect.ValueOfEnum(1)
		default:
			panic(fmt.Sprintf("%s: a kind this test does not know", f.FullName()))
		}
		if f.IsList() {
			m.Mutable(f).List().Append(v)
			continue
		}
		m.Set(f, v)
	}
}

// Every setting of the contract arrives: whoever adds a field and forgets to read it is told here.
func TestEverySettingOfACameraArrives(t *testing.T) {
	m := &ingestv1.Camera{}
	fill(m.ProtoReflect(), 0)
	whole := wire.Camera(m)
	fields := m.ProtoReflect().Descriptor().Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		without := proto.CloneOf(m)
		without.ProtoReflect().Clear(f)
		if reflect.DeepEqual(wire.Camera(without), whole) {
			t.Errorf("%s makes no difference", f.FullName())
		}
	}
}

func TestEveryReasonHasItsNumber(t *testing.T) {
	for number, name := range ingestv1.ErrorReason_name {
		if got := "ERROR_REASON_" + ingest.Reason(number).String(); got != name {
			t.Errorf("reason %d is %s here and %s on the wire", number, got, name)
		}
	}
	e := wire.Fault(fmt.Errorf("outside: %w", &ingest.Error{Reason: ingest.ReasonNotFound, Err: errors.New("no such path")}))
	if e.GetReason() != ingestv1.ErrorReason_ERROR_REASON_NOT_FOUND || e.GetMessage() != "no such path" || e.GetHint() == "" {
		t.Errorf("fault: %v", e)
	}
	if e := wire.Fault(errors.New("x")); e.GetReason() != ingestv1.ErrorReason_ERROR_REASON_INTERNAL {
		t.Errorf("an untyped fault: %v", e)
	}
	if wire.Fault(nil) != nil {
		t.Error("no fault is one")
	}
}

func TestNumbersKeepWithinTheirBounds(t *testing.T) {
	for v, want := range map[int]uint32{-1: 0, 0: 0, 7: 7, math.MaxInt32 + 1: math.MaxInt32} {
		if got := wire.Side(v); got != want {
			t.Errorf("%d became %d", v, got)
		}
	}
	if wire.Time(time.Time{}) != 0 || wire.Time(time.Unix(1, 5)) != 1_000_000_005 {
		t.Error("times")
	}
}
