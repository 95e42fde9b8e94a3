package modelconfig

import (
	"bytes"
	"math"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/vedette/vedette/api/inference"
)

// Print writes a configuration as config.pbtxt, in the order of the fields and
// always alike, so that files made by tools can be compared.
func Print(cfg *inference.ModelConfig) []byte {
	b := new(bytes.Buffer)
	printMessage(b, cfg.ProtoReflect(), "")
	return b.Bytes()
}

func printMessage(b *bytes.Buffer, m protoreflect.Message, indent string) {
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		if !m.Has(f) {
			continue
		}
		v := m.Get(f)
		name := string(f.Name())
		switch {
		case f.IsMap():
			for _, k := range sortedKeys(v.Map()) {
				b.WriteString(indent + name + " {\n" + indent + "  key: ")
				printScalar(b, f.MapKey(), k.Value())
				b.WriteString("\n")
				printField(b, f.MapValue(), "value", v.Map().Get(k), indent+"  ")
				b.WriteString(indent + "}\n")
			}
		case f.IsList() && f.Kind() != protoreflect.MessageKind:
			b.WriteString(indent + name + ": [")
			for k := range v.List().Len() {
				if k > 0 {
					b.WriteString(",")
				}
				b.WriteString(" ")
				printScalar(b, f, v.List().Get(k))
			}
			b.WriteString(" ]\n")
		case f.IsList():
			for k := range v.List().Len() {
				printField(b, f, name, v.List().Get(k), indent)
			}
		default:
			printField(b, f, name, v, indent)
		}
	}
}

func printField(b *bytes.Buffer, f protoreflect.FieldDescriptor, name string, v protoreflect.Value, indent string) {
	if f.Kind() == protoreflect.MessageKind {
		b.WriteString(indent + name + " {\n")
		printMessage(b, v.Message(), indent+"  ")
		b.WriteString(indent + "}\n")
		return
	}
	b.WriteString(indent + name + ": ")
	printScalar(b, f, v)
	b.WriteString("\n")
}

func printScalar(b *bytes.Buffer, f protoreflect.FieldDescriptor, v protoreflect.Value) {
	switch f.Kind() {
	case protoreflect.StringKind:
		printString(b, v.String())
	case protoreflect.BytesKind:
		printString(b, string(v.Bytes()))
	case protoreflect.EnumKind:
		if d := f.Enum().Values().ByNumber(v.Enum()); d != nil {
			b.WriteString(string(d.Name()))
		} else {
			b.WriteString(strconv.Itoa(int(v.Enum())))
		}
	case protoreflect.FloatKind:
		printFloat(b, v.Float(), 32)
	case protoreflect.DoubleKind:
		printFloat(b, v.Float(), 64)
	default:
		b.WriteString(v.String())
	}
}

func printFloat(b *bytes.Buffer, f float64, bits int) {
	switch {
	case math.IsNaN(f):
		b.WriteString("nan")
	case math.IsInf(f, 1):
		b.WriteString("inf")
	case math.IsInf(f, -1):
		b.WriteString("-inf")
	default:
		b.WriteString(strconv.FormatFloat(f, 'g', -1, bits))
	}
}

// printString quotes with the escapes that every reader of the format knows.
func printString(b *bytes.Buffer, s string) {
	b.WriteByte('"')
	for _, c := range []byte(s) {
		switch {
		case c == '"' || c == '\\':
			b.WriteByte('\\')
			b.WriteByte(c)
		case c == '\n':
			b.WriteString(`\n`)
		case c < ' ' || c == 0x7f:
			b.WriteString(`\` + strings.Repeat("0", 3-len(strconv.FormatInt(int64(c), 8))) + strconv.FormatInt(int64(c), 8))
		default:
			b.WriteByte(c)
		}
	}
	b.WriteByte('"')
}

func sortedKeys(m protoreflect.Map) []protoreflect.MapKey {
	var keys []protoreflect.MapKey
	m.Range(func(k protoreflect.MapKey, _ protoreflect.Value) bool {
		keys = append(keys, k)
		return true
	})
	slices.SortFunc(keys, func(a, b protoreflect.MapKey) int { return strings.Compare(a.String(), b.String()) })
	return keys
}
