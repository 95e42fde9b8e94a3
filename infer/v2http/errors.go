package v2http

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strconv"

	"github.com/vedette/vedette/infer"
)

func fail(w http.ResponseWriter, err error) {
	writeError(w, infer.CodeOf(err).HTTP(), err.Error())
}

// writeError answers with the protocol's only form of error.
func writeError(w http.ResponseWriter, status int, message string) {
	writeJSON(w, status, struct {
		Error string `json:"error"`
	}{message})
}

// The content types, ready to be put into a header.
//
//nolint:gochecknoglobals // constants; Go has no constant slices
var (
	typeJSON   = []string{"application/json"}
	typeBinary = []string{"application/octet-stream"}
)

// writeJSON answers in one write.
func writeJSON(w http.ResponseWriter, status int, v any) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false) // texts reach clients as they are
	if err := e.Encode(v); err != nil {
		writeBody(w, http.StatusInternalServerError, []byte(`{"error":"answer cannot be written as JSON"}`))
		return
	}
	writeBody(w, status, bytes.TrimSuffix(b.Bytes(), []byte("\n")))
}

func writeBody(w http.ResponseWriter, status int, body []byte) {
	h := w.Header()
	h["Content-Type"] = typeJSON
	h["Content-Length"] = []string{strconv.Itoa(len(body))}
	w.WriteHeader(status)
	_, _ = w.Write(body)
}

func invalid(format string, args ...any) error {
	return infer.Errorf(infer.InvalidArgument, format, args...)
}
