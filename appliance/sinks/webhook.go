package sinks

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"text/template"
	"time"

	vedettev1 "github.com/vedette/vedette/api/vedette/v1"
)

// webhook posts events to an HTTP address.
type webhook struct {
	target *vedettev1.WebhookTarget
	box    self
	key    string
	client *http.Client
	form   *template.Template // nil: batches of JSON
}

const (
	webhookBatch   = 100
	webhookTimeout = 10 * time.Second
	maxTemplated   = 256 << 10 // bytes of a body
)

func newWebhook(sink *vedettev1.Sink, key string, box self) *webhook {
	t := sink.GetWebhook()
	w := &webhook{target: t, box: box, key: key, client: &http.Client{
		Timeout:   webhookTimeout,
		Transport: &http.Transport{MaxIdleConns: 1, IdleConnTimeout: time.Minute, ForceAttemptHTTP2: true, TLSClientConfig: trust(sink.GetCaPem())},
		// A signed request goes where the operator said, and nowhere else.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
	if t.GetTemplate() != "" {
		w.form, _ = parseTemplate(t.GetTemplate()) // was validated
	}
	return w
}

func (w *webhook) connect(context.Context) error { return nil }
func (w *webhook) lost() <-chan struct{}         { return nil }
func (w *webhook) close()                        { w.client.CloseIdleConnections() }

func (w *webhook) deliver(ctx context.Context, events []*vedettev1.Event) (done int, err error) {
	for done < len(events) {
		n := 1
		if w.form == nil {
			n = min(webhookBatch, len(events)-done)
		}
		body, err := w.body(events[done : done+n])
		if err != nil {
			return done, &refusedError{err: err, event: true}
		}
		if err := w.post(ctx, body); err != nil {
			return done, err
		}
		done += n
	}
	return done, nil
}

func (w *webhook) body(events []*vedettev1.Event) ([]byte, error) {
	if w.form != nil {
		return fill(w.form, events[0])
	}
	list := make([]json.RawMessage, len(events))
	for i, e := range events {
		b, err := encode(e)
		if err != nil {
			return nil, err
		}
		list[i] = b
	}
	return json.Marshal(map[string]any{"events": list})
}

func (w *webhook) post(ctx context.Context, body []byte) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, w.target.GetUri(), bytes.NewReader(body))
	if err != nil {
		return errors.New("post to the webhook: its address cannot be used")
	}
	req.Header.Set("Content-Type", "application/json")
	if t := w.target.GetContentType(); t != "" && w.form != nil {
		req.Header.Set("Content-Type", t)
	}
	req.Header.Set("User-Agent", "vedette")
	for k, v := range w.target.GetHeaders() {
		req.Header.Set(k, v)
	}
	req.Header.Set("Vedette-Box", w.box.id)
	req.Header.Set("Vedette-Box-Name", w.box.name)
	if w.key != "" {
		req.Header.Set("Vedette-Signature", sign(w.key, time.Now(), body))
	}
	resp, err := w.client.Do(req)
	if err != nil {
		// The client's error quotes the address, in which people keep tokens.
		if u, ok := errors.AsType[*url.Error](err); ok {
			err = u.Err
		}
		return fmt.Errorf("post to the webhook: %w", err)
	}
	defer func() { _ = resp.Body.Close() }()
	_, _ = io.CopyN(io.Discard, resp.Body, 64<<10) // so that the connection can be used again
	if resp.StatusCode/100 == 2 {
		return nil
	}
	err = fmt.Errorf("the webhook answered %s", resp.Status)
	switch code := resp.StatusCode; code {
	case http.StatusUnauthorized, http.StatusProxyAuthRequired, // the operator's to mend
		http.StatusRequestTimeout, http.StatusTooEarly, http.StatusTooManyRequests,
		http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout: // a matter of time
	case http.StatusForbidden, http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusGone, http.StatusMisdirectedRequest, http.StatusUpgradeRequired:
		err = &refusedError{err: err} // the address, or the event: who knows
	default:
		err = &refusedError{err: err, event: code/100 == 4}
	}
	if s, bad := strconv.Atoi(resp.Header.Get("Retry-After")); bad == nil && s > 0 {
		return &laterError{err: err, after: time.Duration(s) * time.Second}
	}
	return err
}

// sign is the value of Vedette-Signature: the time is part of what is signed, so that an old request cannot be sent
// again as a new one.
func sign(key string, at time.Time, body []byte) string {
	t := strconv.FormatInt(at.Unix(), 10)
	mac := hmac.New(sha256.New, []byte(key))
	mac.Write([]byte(t + "."))
	mac.Write(body)
	return "t=" + t + ",v1=" + hex.EncodeToString(mac.Sum(nil))
}

func parseTemplate(text string) (*template.Template, error) {
	return template.New("body").Option("missingkey=zero").Funcs(template.FuncMap{
		"json": func(v any) (string, error) {
			b, err := json.Marshal(v)
			return string(b), err
		},
	}).Parse(text)
}

func fill(form *template.Template, e *vedettev1.Event) ([]byte, error) {
	out := &bounded{left: maxTemplated}
	attributes := e.GetAttributes()
	if attributes == nil {
		attributes = map[string]string{}
	}
	err := form.Execute(out, map[string]any{
		"name": e.GetName(), "camera": e.GetCamera(), "type": e.GetType(), "time": e.GetTime().AsTime().UTC().Format(time.RFC3339Nano),
		"track": e.GetTrack(), "attributes": attributes,
	})
	if err != nil {
		return nil, fmt.Errorf("fill the webhook's template: %w", err)
	}
	return out.Bytes(), nil
}

// bounded is a buffer that a template cannot fill without end.
type bounded struct {
	bytes.Buffer
	left int
}

func (b *bounded) Write(p []byte) (int, error) {
	if b.left -= len(p); b.left < 0 {
		return 0, fmt.Errorf("it makes more than %d bytes", maxTemplated)
	}
	return b.Buffer.Write(p)
}
