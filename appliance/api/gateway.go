package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"github.com/grpc-ecosystem/grpc-gateway/v2/utilities"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// jsonFaults makes the errors of the gateway itself like those of the services: with a reason, and a text that says
// what to do.
func jsonFaults() []runtime.ServeMuxOption {
	return []runtime.ServeMuxOption{
		runtime.WithErrorHandler(jsonFault),
		runtime.WithRoutingErrorHandler(routingFault),
		runtime.SetQueryParameterParser(strictQuery{}),
	}
}

// jsonFault answers with an error. Those without details come from the gateway: it could not read the request.
func jsonFault(ctx context.Context, mux *runtime.ServeMux, m runtime.Marshaler, w http.ResponseWriter, r *http.Request, err error) {
	var tooLarge *http.MaxBytesError
	s := status.Convert(err)
	switch {
	case errors.As(err, &tooLarge) || strings.HasSuffix(s.Message(), "request body too large"):
		err = &runtime.HTTPStatusError{
			HTTPStatus: http.StatusRequestEntityTooLarge, Err: detailed(codes.InvalidArgument, "REQUEST_TOO_LARGE", "the body of the request is larger than 4 MiB"),
		}
	case s.Code() == codes.InvalidArgument && len(s.Details()) == 0:
		err = detailed(codes.InvalidArgument, "INVALID_ARGUMENT", "the request cannot be read: "+s.Message()+" (/openapi.json describes what goes here)")
	}
	runtime.DefaultHTTPErrorHandler(ctx, mux, m, w, r, err)
}

// routingFault answers a request that goes nowhere.
func routingFault(ctx context.Context, mux *runtime.ServeMux, m runtime.Marshaler, w http.ResponseWriter, r *http.Request, code int) {
	var err error
	switch code {
	case http.StatusMethodNotAllowed:
		err = detailed(codes.Unimplemented, "METHOD_NOT_ALLOWED", r.Method+" does not go with "+r.URL.Path+" (/openapi.json lists what does)")
	case http.StatusNotFound:
		err = detailed(codes.NotFound, "NO_SUCH_PATH", r.URL.Path+" is no path of this API (/openapi.json lists them)")
	default:
		runtime.DefaultRoutingErrorHandler(ctx, mux, m, w, r, code)
		return
	}
	runtime.DefaultHTTPErrorHandler(ctx, mux, m, w, r, &runtime.HTTPStatusError{HTTPStatus: code, Err: err})
}

// strictQuery refuses parameters that the request has no field for: a misspelt filter must not show everything.
type strictQuery struct{ runtime.DefaultQueryParser }

// Parse implements runtime.QueryParameterParser.
func (q strictQuery) Parse(m proto.Message, values url.Values, used *utilities.DoubleArray) error {
	for name := range values {
		if !hasField(m.ProtoReflect().Descriptor(), strings.Split(name, ".")) {
			return fmt.Errorf("there is no parameter %q", name)
		}
	}
	return q.DefaultQueryParser.Parse(m, values, used)
}

// hasField tells whether a path of names leads to a field; maps end with a key in brackets.
func hasField(m protoreflect.MessageDescriptor, path []string) bool {
	name, _, isMap := strings.Cut(path[0], "[")
	f := m.Fields().ByTextName(name)
	if f == nil {
		f = m.Fields().ByJSONName(name)
	}
	switch {
	case f == nil:
		return false
	case len(path) == 1:
		return !isMap || f.IsMap()
	case f.Message() == nil:
		return false
	default:
		return hasField(f.Message(), path[1:])
	}
}
