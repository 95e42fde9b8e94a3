package conformance

// row is one row of the contract.
type row struct {
	id, title string
	deviation string // from Triton, on purpose
	outside   string // why it is not served, if it is not
	last      bool   // of its section
}

// section is the heading that a row stands under.
func (r row) section() string {
	switch r.id[0] {
	case 'P':
		return "Protocol"
	case 'R':
		return "Models and their repository"
	case 'S':
		return "Schedulers"
	case 'X':
		return "Extensions, metrics, back ends"
	}
	return "Tools"
}

// contract lists the rows in their order.
func contract() []row {
	return []row{
		{id: "P1", title: "HTTP routes, methods, status codes, error body", deviation: "health answers carry the Open Inference Protocol's body, which Triton leaves empty"},
		{id: "P2", title: "gRPC service and status codes, keepalive, message sizes"},
		{id: "P3", title: "Health of server and models", deviation: "ready means loaded and warmed up"},
		{id: "P4", title: "Server metadata and extensions"},
		{id: "P5", title: "Model metadata"},
		{id: "P6", title: "Model configuration, normalised", deviation: "every 64-bit number is a JSON number, also where Triton leaves strings"},
		{id: "P7", title: "Inference over HTTP in JSON", deviation: "JSON whose values cannot be read, such as data that does not fit its shape or a negative dimension, is the client's fault (400), not the server's (500)"},
		{id: "P8", title: "Binary tensors over HTTP", deviation: "binary_data_output also holds for outputs that are listed without binary_data, as the extension's text has it"},
		{id: "P9", title: "Layout of every data type, BYTES, FP16 and BF16", deviation: "an ONNX model refuses strings with a zero byte, where Triton cuts them, and tensors without elements if it has operators that could end the server over them"},
		{id: "P10", title: "Raw binary request"},
		{id: "P11", title: "Inference over gRPC"},
		{id: "P12", title: "Inference over a gRPC stream"},
		{id: "P13", title: "Validation of requests and its texts"},
		{id: "P14", title: "Parameters of requests and responses, forwarded headers", deviation: "a forwarded header has its name in lower case over HTTP too, where Triton keeps the client's case"},
		{id: "P15", title: "Classification"},
		{id: "P16", title: "Generate", outside: "it serves language models, which the appliance does not run"},
		{id: "P17", title: "Compression"},
		{id: "P18", title: "Restricted interfaces"},
		{id: "P19", title: "Cancellation", deviation: "a sequence step inside an ensemble does not take its sequence down when a client cancels: the step hears that time went by", last: true},

		{id: "R1", title: "Layout of the repository, protobuf text", deviation: "a folder with neither a configuration nor a version is no model: the index says so, and it fails nothing"},
		{id: "R2", title: "Configurations completed from the model's files"},
		{id: "R3", title: "Version policies"},
		{id: "R4", title: "Model control: none, explicit, poll; reload without a gap", deviation: "sequences outlive a planned reload of the same version where the model or the server keeps their state"},
		{id: "R5", title: "Repository index"},
		{id: "R6", title: "Instance groups", deviation: "the threads of all CPU instances of a model together stay within the cores unless the model says otherwise, so that an instance whose share shrinks is loaded anew"},
		{id: "R7", title: "Warm-up"},
		{
			id: "R8", title: "ONNX Runtime's options, checks at load",
			deviation: "enable-global-threadpool is refused: the binding has no global thread pool", last: true,
		},

		{id: "S1", title: "Default scheduler"},
		{id: "S2", title: "Dynamic batcher"},
		{
			id: "S3", title: "Priorities and queue policies",
			deviation: "time-outs come by timer, not when a batch is formed; a request's own time-out works without a default",
		},
		{
			id: "S4", title: "Sequences: slots, backlog, idle time-out, cancellation",
			deviation: "idle time counts from the last arrival or answer; the model is told when a sequence closes, and why; per-sequence queue policies, off by default",
		},
		{id: "S5", title: "Direct strategy", deviation: "the padding of idle slots is zeros"},
		{id: "S6", title: "Oldest strategy"},
		{id: "S7", title: "Control inputs"},
		{
			id: "S8", title: "Implicit state",
			deviation: "inputs and outputs are paired by configuration entry, not by sorted names; state without an initial state begins as zeros; an open dimension takes the initial state's",
		},
		{id: "S9", title: "Iterative sequences", deviation: "a request that the model works on is not idle, however short the idle time-out"},
		{id: "S10", title: "Ragged inputs"},
		{
			id: "S11", title: "Ensembles",
			deviation: "steps with state run in the order of admission; a request that fails before them is a tick without observation; only what the asked outputs need is run",
		},
		{id: "S12", title: "Decoupled models"},
		{id: "S13", title: "Rate limiter"},
		{id: "S14", title: "Response cache", deviation: "the cache is local; other kinds are refused at the start; a model that is loaded anew answers anew", last: true},

		{id: "X1", title: "Statistics"},
		{id: "X2", title: "Metrics", deviation: "latency histograms for every model, not only decoupled ones; a summary of requests also where answers are cached"},
		{id: "X3", title: "System shared memory", deviation: "a region truncated while in use is an error of the request, not a crash"},
		{id: "X4", title: "CUDA shared memory", deviation: "always refused, as by a build without GPUs"},
		{id: "X5", title: "Trace settings", deviation: "spans of OpenTelemetry carry no tensors"},
		{id: "X6", title: "Log settings"},
		{id: "X7", title: "Custom back ends and reference models", deviation: "a back end is a Go package or a server of its own, not a shared library"},
		{id: "X8", title: "Models that call models", deviation: "scripts are Starlark, bounded in steps and time, in place of Python; they load and unload no models"},
		{id: "X9", title: "Command line", last: true},

		{id: "T1", title: "Measuring a server under load"},
		{id: "T2", title: "Searching for a model's best configuration", last: true},
	}
}
