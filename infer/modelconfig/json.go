package modelconfig

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/vedette/vedette/api/inference"
)

// ParseJSON reads a configuration from JSON with proto or JSON field names. As
// in the reference server, names need no quotes.
func ParseJSON(text []byte) (*inference.ModelConfig, error) {
	if len(text) > maxSize {
		return nil, fmt.Errorf("configuration of %d bytes is larger than %d", len(text), maxSize)
	}
	cfg := new(inference.ModelConfig)
	err := protojson.Unmarshal(text, cfg)
	if err != nil && protojson.Unmarshal(quoteNames(text), cfg) != nil {
		return nil, errors.New(strings.TrimPrefix(clean(err), "(json): "))
	}
	return cfg, defined(cfg)
}

// quoteNames puts quotes around words before a colon that have none.
func quoteNames(text []byte) []byte {
	out := make([]byte, 0, len(text)+16)
	for len(text) > 0 {
		n := 1
		switch c := text[0]; {
		case c == '"':
			for n < len(text) && text[n] != '"' {
				if text[n] == '\\' {
					n++
				}
				n++
			}
			n = min(n+1, len(text))
		case wordByte(c):
			for n < len(text) && wordByte(text[n]) {
				n++
			}
			if bytes.HasPrefix(bytes.TrimLeft(text[n:], " \t\r\n"), []byte{':'}) {
				out = append(append(append(out, '"'), text[:n]...), '"')
				text = text[n:]
				continue
			}
		}
		out = append(out, text[:n]...)
		text = text[n:]
	}
	return out
}

func wordByte(c byte) bool {
	return c == '_' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
}

// AppendJSON adds a configuration to dst as the model configuration extension
// answers it: proto field names, every primitive field also where it is zero,
// enums by name, and 64-bit integers as numbers. (The reference server leaves
// some of those as strings; a client has to take both.)
func AppendJSON(dst []byte, cfg *inference.ModelConfig) []byte {
	b := bytes.NewBuffer(dst)
	writeMessage(b, cfg.ProtoReflect())
	return b.Bytes()
}

func writeMessage(b *bytes.Buffer, m protoreflect.Message) {
	b.WriteByte('{')
	fields := m.Descriptor().Fields()
	first := true
	for i := range fields.Len() {
		f := fields.Get(i)
		// Messages and members of a oneof are there or not; the rest always is.
		if (f.HasPresence() || f.ContainingOneof() != nil) && !m.Has(f) {
			continue
		}
		if !first {
			b.WriteByte(',')
		}
		first = false
		writeString(b, string(f.Name()))
		b.WriteByte(':')
		v := m.Get(f)
		switch {
		case f.IsMap():
			writeMap(b, f, v.Map())
		case f.IsList():
			writeList(b, f, v.List())
		default:
			writeValue(b, f, v)
		}
	}
	b.WriteByte('}')
}

func writeMap(b *bytes.Buffer, f protoreflect.FieldDescriptor, m protoreflect.Map) {
	b.WriteByte('{')
	for i, k := range sortedKeys(m) {
		if i > 0 {
			b.WriteByte(',')
		}
		writeString(b, k.String())
		b.WriteByte(':')
		writeValue(b, f.MapValue(), m.Get(k))
	}
	b.WriteByte('}')
}

func writeList(b *bytes.Buffer, f protoreflect.FieldDescriptor, l protoreflect.List) {
	b.WriteByte('[')
	for i := range l.Len() {
		if i > 0 {
			b.WriteByte(',')
		}
		writeValue(b, f, l.Get(i))
	}
	b.WriteByte(']')
}

func writeValue(b *bytes.Buffer, f protoreflect.FieldDescriptor, v protoreflect.Value) {
	switch f.Kind() {
	case protoreflect.MessageKind, protoreflect.GroupKind:
		writeMessage(b, v.Message())
	case protoreflect.EnumKind:
		if d := f.Enum().Values().ByNumber(v.Enum()); d != nil {
			writeString(b, string(d.Name()))
		} else {
			b.WriteString(strconv.Itoa(int(v.Enum())))
		}
	case protoreflect.StringKind:
		writeString(b, v.String())
	case protoreflect.BytesKind:
		writeString(b, string(v.Bytes()))
	case protoreflect.BoolKind:
		b.WriteString(strconv.FormatBool(v.Bool()))
	case protoreflect.FloatKind:
		b.WriteString(jsonFloat(v.Float(), 32))
	case protoreflect.DoubleKind:
		b.WriteString(jsonFloat(v.Float(), 64))
	default:
		b.WriteString(v.String())
	}
}

// jsonFloat prints a number the way protobuf's JSON does, whose infinities are
// strings.
func jsonFloat(f float64, bits int) string {
	s := strconv.FormatFloat(f, 'g', -1, bits)
	switch s {
	case "NaN":
		return `"NaN"`
	case "+Inf":
		return `"Infinity"`
	case "-Inf":
		return `"-Infinity"`
	}
	return s
}

func writeString(b *bytes.Buffer, s string) {
	e := json.NewEncoder(b)
	e.SetEscapeHTML(false)
	_ = e.Encode(s)         // a string and a buffer cannot fail
	b.Truncate(b.Len() - 1) // the line end
}
