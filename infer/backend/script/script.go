// Package script is the backend for models that are a few lines of text: they
// look at tensors, decide, and call other models through their schedulers.
//
// The version's model.star is Starlark, a small Python. It defines
//
//	def execute(request):
//	    scores = infer("classifier", {"IMAGE": request.inputs["IMAGE"]})["SCORES"]
//	    return {"BEST": tensor("INT64", [1], [scores.argmax()])}
//
// request has inputs, parameters, id, correlation_id, sequence_start and
// sequence_end. What a script may call:
//
//	tensor(datatype, shape, values)   makes a tensor
//	infer(model, inputs, outputs=[], version=-1, timeout_us=0, correlation_id=0, sequence_start=False, sequence_end=False, parameters={})
//	                                  runs a model and returns its outputs by name; its error ends the script
//	infer_stream(...)                 the same for a decoupled model: returns a list of what it answered, once it is done
//	try_infer(...)                    the same, returns (outputs, None) or (None, error text)
//	infer_all([(model, inputs), ...]) runs several at once, so that they can share batches
//	respond(outputs)                  answers now (decoupled models, which then return None)
//	cancelled()                       tells whether the client has given the request up
//	config                            the model's parameters
//
// A tensor has datatype, shape, size, values() (flat), rows(from, to) (a view along
// the first dimension), reshape(shape) and argmax(). Tensors are passed on
// without being copied.
//
// A run is bounded in steps (parameter max_steps, 10 000 000) and in time
// (max_time_ms, 5000), the time of the models it calls included. It is not bounded
// in memory, and one operation of the language is not interrupted: a list repeated
// a thousand million times takes what it takes. Scripts are trusted as any program
// on the machine is; whoever may load models with files of their own (the restricted
// API model-repository) may run them.
package script

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"go.starlark.net/starlark"
	"go.starlark.net/syntax"

	"github.com/vedette/vedette/infer"
	"github.com/vedette/vedette/infer/backend"
	"github.com/vedette/vedette/infer/modelconfig"
	"github.com/vedette/vedette/infer/tensor"
)

// New returns the backend.
func New() *Backend { return &Backend{} }

// Backend is the script backend.
type Backend struct{}

var _ backend.Backend = (*Backend)(nil)

// Complete refuses a script that does not compile.
func (*Backend) Complete(_ context.Context, m *backend.Model) error {
	_, err := load(m)
	return err
}

// NewInstance compiles the script once more.
func (*Backend) NewInstance(_ context.Context, m *backend.Model, _ backend.Placement) (backend.Instance, error) {
	return load(m)
}

const (
	defaultSteps = 10_000_000
	defaultTime  = 5 * time.Second
	// maxScript bounds the text of a script.
	maxScript = 1 << 20
)

// instance is a compiled script.
type instance struct {
	model     *backend.Model
	execute   starlark.Callable
	outputs   map[string]tensor.DataType
	decoupled bool
	steps     uint64
	time      time.Duration
}

func load(m *backend.Model) (*instance, error) {
	fault := func(err error) error { return fmt.Errorf("script model %q version %d: %w", m.Name, m.Version, err) }
	in := &instance{
		model: m, steps: defaultSteps, time: defaultTime, outputs: map[string]tensor.DataType{},
		decoupled: m.Config.GetModelTransactionPolicy().GetDecoupled(),
	}
	var faults []error
	if len(m.Config.GetInput()) == 0 || len(m.Config.GetOutput()) == 0 {
		faults = append(faults, errors.New("the configuration must list inputs and outputs: nothing else says what a script takes"))
	}
	for _, o := range m.Config.GetOutput() {
		in.outputs[o.GetName()] = modelconfig.DataType(o.GetDataType())
	}
	if v := m.Parameter("max_steps", ""); v != "" {
		n, err := strconv.ParseUint(v, 10, 63)
		if err != nil || n == 0 {
			faults = append(faults, fmt.Errorf("parameters[max_steps]: %q is not a number from 1", v))
		}
		in.steps = n
	}
	if v := m.Parameter("max_time_ms", ""); v != "" {
		n, err := strconv.Atoi(v)
		if err != nil || n < 1 {
			faults = append(faults, fmt.Errorf("parameters[max_time_ms]: %q is not a number from 1", v))
		}
		in.time = time.Duration(n) * time.Millisecond
	}
	if len(faults) > 0 {
		return nil, fault(errors.Join(faults...))
	}
	name := m.Config.GetDefaultModelFilename()
	if name == "" {
		name = "model.star"
	}
	path := filepath.Join(m.VersionDir, name)
	st, err := os.Stat(path)
	if err != nil {
		return nil, fault(err)
	}
	if st.Size() > maxScript {
		return nil, fault(fmt.Errorf("%s has %d bytes, at most %d are read", path, st.Size(), maxScript))
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fault(err)
	}
	r := &call{in: in, ctx: context.Background()}
	thread := in.thread(r)
	options := &syntax.FileOptions{Set: true, While: true, TopLevelControl: true}
	globals, err := starlark.ExecFileOptions(options, thread, name, text, in.predeclared())
	if err != nil {
		return nil, fault(explain(err))
	}
	globals.Freeze()
	f, ok := globals["execute"].(starlark.Callable)
	if !ok {
		return nil, fault(fmt.Errorf("%s does not define execute(request)", name))
	}
	in.execute = f
	return in, nil
}

// explain keeps the place in the script that Starlark's own text leaves out.
func explain(err error) error {
	if e, ok := errors.AsType[*starlark.EvalError](err); ok {
		at := 0
		for at+1 < len(e.CallStack) && e.CallStack.At(at).Pos.Filename() == "<builtin>" {
			at++ // where the script called it
		}
		return fmt.Errorf("%s: %w", e.CallStack.At(at).Pos, err)
	}
	return err
}

// Close has nothing to free.
func (*instance) Close() error { return nil }

// thread is a fresh, bounded interpreter.
func (in *instance) thread(c *call) *starlark.Thread {
	t := &starlark.Thread{Name: in.model.Name, Print: func(_ *starlark.Thread, msg string) {
		in.model.Logger.Debug("script says", slog.String("model", in.model.Name), slog.String("text", msg))
	}}
	t.SetMaxExecutionSteps(in.steps)
	t.SetLocal(callKey, c)
	return t
}

// Execute runs the script for every request.
func (in *instance) Execute(ctx context.Context, jobs []*backend.Job) {
	for _, j := range jobs {
		in.run(ctx, j)
	}
}

func (in *instance) run(ctx context.Context, j *backend.Job) {
	if j.Null {
		j.Respond(j.NewResponse())
		return
	}
	start := time.Now()
	ctx, cancel := context.WithTimeout(ctx, in.time)
	defer cancel()
	c := &call{in: in, ctx: ctx, job: j}
	defer c.release()
	thread := in.thread(c)
	stop := context.AfterFunc(ctx, func() { thread.Cancel("its time is over") })
	defer stop()
	value, err := starlark.Call(thread, in.execute, starlark.Tuple{requestValue(j)}, nil)
	switch {
	case err != nil && time.Since(start) >= in.time && !j.Cancelled():
		j.Fail(in.failure(&infer.Error{Message: fmt.Sprintf("it ran longer than %v (parameters[max_time_ms]): %v", in.time, explain(err))}))
	case err != nil:
		j.Fail(in.failure(err))
	case in.decoupled && value == starlark.None:
		j.Finish()
	default:
		outputs, ok := value.(*starlark.Dict)
		if !ok {
			j.Fail(infer.Errorf(infer.Internal, "script '%s': execute returned %s, not a dict of tensors", in.model.Name, value.Type()))
			return
		}
		r, err := c.response(outputs)
		if err != nil {
			j.Fail(infer.Errorf(infer.Internal, "script '%s': %v", in.model.Name, err))
			return
		}
		j.Respond(r)
		if in.decoupled {
			j.Finish()
		}
	}
}

// failure keeps the code of a model's error that ended the script.
func (in *instance) failure(err error) error {
	code := infer.Internal
	if e, ok := errors.AsType[*infer.Error](err); ok {
		code = e.Code
	}
	return &infer.Error{Code: code, Message: fmt.Sprintf("script '%s': %v", in.model.Name, explain(err)), Reason: infer.ReasonBackend}
}

// predeclared are the names every script has.
func (in *instance) predeclared() starlark.StringDict {
	config := starlark.NewDict(len(in.model.Config.GetParameters()))
	for k := range in.model.Config.GetParameters() {
		_ = config.SetKey(starlark.String(k), starlark.String(in.model.Parameter(k, ""))) // strings are hashable
	}
	config.Freeze()
	return starlark.StringDict{
		"config":       config,
		"tensor":       starlark.NewBuiltin("tensor", makeTensor),
		"infer":        starlark.NewBuiltin("infer", inferOne),
		"infer_stream": starlark.NewBuiltin("infer_stream", inferStream),
		"try_infer":    starlark.NewBuiltin("try_infer", tryInfer),
		"infer_all":    starlark.NewBuiltin("infer_all", inferAll),
		"respond":      starlark.NewBuiltin("respond", respond),
		"cancelled":    starlark.NewBuiltin("cancelled", cancelled),
	}
}
