package api

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.einride.tech/aip/filtering"
	expr "google.golang.org/genproto/googleapis/api/expr/v1alpha1"

	"github.com/vedette/vedette/store"
)

// field is one thing a filter may speak of.
type field struct {
	ops []string
	// set puts a comparison into the query. Values joined by OR come one by one.
	set func(q *store.Query, op, value string) error
	// many allows several values joined by OR.
	many bool
}

// condition is one comparison of a filter.
type condition struct {
	field, op string
	values    []string
	at        int32 // byte offset of the field, from 0
}

const (
	maxFilter = 4096
	// maxNesting bounds what the parser does for a filter: it takes time that grows with the square of the nesting.
	maxNesting = 16
)

// tooDeep tells where parentheses outside of texts are nested too deeply; -1: nowhere.
func tooDeep(filter string) int {
	depth, quote := 0, byte(0)
	for i := range len(filter) {
		switch c := filter[i]; {
		case quote != 0:
			if c == quote { // an escaped one ends it too early, which lets parentheses of a text count
				quote = 0
			}
		case c == ')':
			depth = max(0, depth-1)
		case c == '"' || c == '\'':
			quote = c
		case c == '(':
			if depth++; depth > maxNesting {
				return i
			}
		}
	}
	return -1
}

// applyFilter puts a filter's conditions into the query. Every error is for the filter's author.
func applyFilter(q *store.Query, filter string, fields map[string]field) error {
	if strings.TrimSpace(filter) == "" {
		return nil
	}
	if len(filter) > maxFilter {
		return invalid("filter", "%d bytes, at most %d", len(filter), maxFilter)
	}
	if at := tooDeep(filter); at >= 0 {
		return invalid("filter", "at character %d: more than %d parentheses within each other", at+1, maxNesting)
	}
	var parser filtering.Parser
	parser.Init(filter)
	parsed, err := parser.Parse()
	if err != nil {
		return invalid("filter", "%s", syntaxFault(err))
	}
	r := &filterReader{positions: parsed.GetSourceInfo().GetPositions(), fields: fields}
	conditions, err := r.all(parsed.GetExpr())
	if err != nil {
		return err
	}
	seen := map[string]bool{}
	for _, c := range conditions {
		if seen[c.field+c.op] {
			return r.fault(c.at, "%s %s is given twice", c.field, c.op)
		}
		seen[c.field+c.op] = true
		for _, v := range c.values {
			if err := fields[c.field].set(q, c.op, v); err != nil {
				return r.fault(c.at, "%s %s %q: %s", c.field, c.op, v, err)
			}
		}
	}
	return nil
}

// syntaxFault says where the text stops being a filter. The parser's own text draws the filter once for every rule
// it was in, up to the place of the fault, which stands last.
func syntaxFault(err error) string {
	at := regexp.MustCompile(`\((\d+):(\d+)\)`).FindAllStringSubmatch(err.Error(), -1)
	const want = `conditions look like class = "person" AND start_time >= "2026-05-01T00:00:00Z"`
	if len(at) == 0 {
		return "cannot be read; " + want
	}
	return fmt.Sprintf("cannot be read from character %s on; %s", at[len(at)-1][2], want)
}

type filterReader struct {
	positions map[int64]int32
	fields    map[string]field
}

func (r *filterReader) fault(at int32, format string, args ...any) error {
	return invalid("filter", "at character %d: %s", at+1, fmt.Sprintf(format, args...))
}

// all reads conditions joined by AND.
func (r *filterReader) all(e *expr.Expr) ([]condition, error) {
	call := e.GetCallExpr()
	if call == nil {
		return nil, r.fault(r.positions[e.GetId()], "expected a comparison like class = \"person\"")
	}
	switch call.GetFunction() {
	case filtering.FunctionAnd, filtering.FunctionFuzzyAnd:
		var list []condition
		for _, arg := range call.GetArgs() {
			c, err := r.all(arg)
			if err != nil {
				return nil, err
			}
			list = append(list, c...)
		}
		return list, nil
	case filtering.FunctionOr:
		c, err := r.any(e)
		if err != nil {
			return nil, err
		}
		return []condition{c}, nil
	default:
		c, err := r.one(e)
		if err != nil {
			return nil, err
		}
		return []condition{c}, nil
	}
}

// any reads equalities of one field joined by OR.
func (r *filterReader) any(e *expr.Expr) (condition, error) {
	call := e.GetCallExpr()
	if call.GetFunction() != filtering.FunctionOr {
		return r.one(e)
	}
	var joined condition
	for i, arg := range call.GetArgs() {
		c, err := r.any(arg)
		if err != nil {
			return condition{}, err
		}
		if c.op != filtering.FunctionEquals || !r.fields[c.field].many || (i > 0 && c.field != joined.field) {
			return condition{}, r.fault(c.at, "OR joins values of one field only, such as class = \"person\" OR class = \"car\"")
		}
		if i == 0 {
			joined = c
		} else {
			joined.values = append(joined.values, c.values...)
		}
	}
	return joined, nil
}

// one reads a single comparison.
func (r *filterReader) one(e *expr.Expr) (condition, error) {
	call, at := e.GetCallExpr(), r.positions[e.GetId()]
	if call == nil || len(call.GetArgs()) != 2 {
		return condition{}, r.fault(at, "expected a comparison like class = \"person\"")
	}
	left, right := call.GetArgs()[0], call.GetArgs()[1]
	name := left.GetIdentExpr().GetName()
	if p, ok := r.positions[left.GetId()]; ok {
		at = p
	}
	f, ok := r.fields[name]
	if !ok {
		return condition{}, r.fault(at, "%q is no field to filter by; there are %s", text(left), strings.Join(sortedKeys(r.fields), ", "))
	}
	if !slices.Contains(f.ops, call.GetFunction()) {
		return condition{}, r.fault(at, "%s does not go with %s; it takes %s", call.GetFunction(), name, strings.Join(f.ops, " and "))
	}
	value, ok := literal(right)
	if !ok {
		return condition{}, r.fault(at, "%s is compared with something that is no value", name)
	}
	return condition{field: name, op: call.GetFunction(), values: []string{value}, at: at}, nil
}

func text(e *expr.Expr) string {
	if s := e.GetSelectExpr(); s != nil {
		return text(s.GetOperand()) + "." + s.GetField()
	}
	if name := e.GetIdentExpr().GetName(); name != "" {
		return name
	}
	s, _ := literal(e)
	return s
}

// literal reads a value: quoted, a number, or a bare word.
func literal(e *expr.Expr) (string, bool) {
	if name := e.GetIdentExpr().GetName(); name != "" {
		return name, true
	}
	if c := e.GetCallExpr(); c != nil && len(c.GetArgs()) == 1 {
		switch c.GetFunction() {
		case filtering.FunctionTimestamp, filtering.FunctionDuration:
			return literal(c.GetArgs()[0])
		}
		return "", false
	}
	switch k := e.GetConstExpr().GetConstantKind().(type) {
	case *expr.Constant_StringValue:
		return k.StringValue, true
	case *expr.Constant_Int64Value:
		return strconv.FormatInt(k.Int64Value, 10), true
	case *expr.Constant_DoubleValue:
		return strconv.FormatFloat(k.DoubleValue, 'g', -1, 64), true
	}
	return "", false
}

// The fields a filter may speak of, by list.
func commonFields() map[string]field {
	return map[string]field{
		"camera": {ops: []string{"="}, many: true, set: func(q *store.Query, _, v string) error {
			q.Cameras = append(q.Cameras, strings.TrimPrefix(v, "cameras/"))
			return nil
		}},
	}
}

func trackFields() map[string]field {
	f := commonFields()
	f["class"], f["score"], f["sequence"] = classField(), scoreField(), sequenceField()
	f["start_time"] = timeField()
	f["duration"] = field{ops: []string{">="}, set: func(q *store.Query, _, v string) error {
		if d, err := time.ParseDuration(v); err == nil && d >= 0 {
			q.MinDuration = d
			return nil
		}
		return fmt.Errorf("want a duration such as 2s or 1.5s")
	}}
	f["state"] = field{ops: []string{"="}, set: func(q *store.Query, _, v string) error {
		switch strings.TrimPrefix(v, "TRACK_STATE_") {
		case "OPEN":
			q.State = store.TrackActive
		case "ENDED":
			q.State = store.TrackEnded
		default:
			return fmt.Errorf("want OPEN or ENDED")
		}
		return nil
	}}
	return f
}

func detectionFields() map[string]field {
	f := commonFields()
	f["class"], f["score"], f["sequence"] = classField(), scoreField(), sequenceField()
	f["time"], f["track"] = timeField(), trackField()
	return f
}

func eventFields() map[string]field {
	f := commonFields()
	f["time"], f["track"] = timeField(), trackField()
	f["type"] = field{ops: []string{"="}, many: true, set: func(q *store.Query, _, v string) error {
		q.Types = append(q.Types, v)
		return nil
	}}
	for _, name := range []string{"zone", "line", "class"} {
		f[name] = field{ops: []string{"="}, many: true, set: func(q *store.Query, _, v string) error {
			if q.Payload == nil {
				q.Payload = map[string][]string{}
			}
			q.Payload[name] = append(q.Payload[name], v)
			return nil
		}}
	}
	return f
}

func classField() field {
	return field{ops: []string{"="}, many: true, set: func(q *store.Query, _, v string) error {
		q.Classes = append(q.Classes, v)
		return nil
	}}
}

func scoreField() field {
	return field{ops: []string{">="}, set: func(q *store.Query, _, v string) error {
		s, err := strconv.ParseFloat(v, 32)
		if err != nil || s < 0 || s > 1 {
			return fmt.Errorf("want a number from 0 to 1")
		}
		q.MinScore = float32(s)
		return nil
	}}
}

func sequenceField() field {
	return field{ops: []string{"="}, set: func(q *store.Query, _, v string) error {
		n, err := strconv.ParseInt(v, 10, 64)
		if err != nil || n <= 0 {
			return fmt.Errorf("want a positive number")
		}
		q.Sequence = n
		return nil
	}}
}

func trackField() field {
	return field{ops: []string{"="}, set: func(q *store.Query, _, v string) error {
		if i := strings.LastIndexByte(v, '/'); i >= 0 {
			v = v[i+1:]
		}
		id, err := store.ParseTrackID(v)
		if err != nil {
			return fmt.Errorf("want a track's name")
		}
		q.Track = id
		return nil
	}}
}

func timeField() field {
	return field{ops: []string{">=", "<"}, set: func(q *store.Query, op, v string) error {
		t, err := time.Parse(time.RFC3339Nano, v)
		if err != nil {
			return fmt.Errorf("want a time such as 2026-05-01T00:00:00Z")
		}
		if op == "<" {
			q.End = t
		} else {
			q.Start = t
		}
		return nil
	}}
}
