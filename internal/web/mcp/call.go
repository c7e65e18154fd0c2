package mcp

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"net/url"

	"slipway/internal/tenant/account"
	"slipway/internal/tenant/confirmation"
	"slipway/internal/web/api"
)

// call is a client's request, whose credential the tools use.
type call struct {
	api       http.Handler
	origin    *http.Request // the client's request
	caller    account.Caller
	narrowing account.Narrowing

	confirmations *confirmation.Confirmations
	base          string     // URL of the dashboard
	addr          netip.Addr // the client's
}

// maxAnswer caps the API's response to a tool in bytes; a page of a log has 10,000 lines.
const maxAnswer = 24 << 20

// apiError is an error response of the API.
type apiError struct {
	Status  int    `json:"-"`
	Message string `json:"error"`
	Details string `json:"details"`
	Code    string `json:"code"`
	Confirm string `json:"-"` // URL of the page that confirms the call. Optional.
}

func (e *apiError) Error() string { return e.Message }

// send calls the REST API and returns its response.
func (c *call) send(ctx context.Context, method, path string, query url.Values, body any, idempotencyKey string) (any, error) {
	var out any
	err := c.sendFor(ctx, method, path, query, body, idempotencyKey, &out)
	if out == nil {
		out = map[string]any{}
	}
	return out, err
}

// sendFor calls the REST API with the caller's credential and address and decodes the response into out.
func (c *call) sendFor(ctx context.Context, method, path string, query url.Values, body any, idempotencyKey string, out any) error {
	var in bytes.Reader
	if body != nil {
		b, err := json.Marshal(body)
		if err != nil {
			return err
		}
		in.Reset(b)
	}
	target := "/api/v1" + path
	if len(query) > 0 {
		target += "?" + query.Encode()
	}
	r, err := http.NewRequestWithContext(api.ForMCP(ctx, c.narrowing), method, target, &in)
	if err != nil {
		return err
	}
	if body == nil {
		r.Body, r.ContentLength = http.NoBody, 0
	} else {
		r.Header.Set("Content-Type", "application/json")
	}
	r.Header["Authorization"] = c.origin.Header["Authorization"]
	for name, values := range r.Header {
		if len(values) == 0 {
			delete(r.Header, name)
		}
	}
	if idempotencyKey != "" {
		r.Header.Set("Idempotency-Key", idempotencyKey)
	}
	r.Host, r.RemoteAddr, r.RequestURI, r.TLS = c.origin.Host, netip.AddrPortFrom(c.addr, 0).String(), target, c.origin.TLS
	w := &recorder{header: http.Header{}}
	c.api.ServeHTTP(w, r)
	if w.over {
		return &apiError{Message: "The result is too large", Details: "ask for less", Code: "result_too_large"}
	}
	if w.status >= 400 {
		no := &apiError{Status: w.status}
		if err := json.Unmarshal(w.body.Bytes(), no); err != nil || no.Message == "" {
			return fmt.Errorf("the API answers %d", w.status)
		}
		return no
	}
	if w.body.Len() == 0 {
		return nil
	}
	return read(&w.body, out)
}

// read decodes JSON and keeps numbers as written.
func read(from io.Reader, out any) error {
	d := json.NewDecoder(from)
	d.UseNumber()
	if err := d.Decode(out); err != nil {
		return fmt.Errorf("read the API's answer: %w", err)
	}
	return nil
}

var errFull = errors.New("the answer is too large")

// recorder records a response of the API.
type recorder struct {
	header http.Header
	status int
	body   bytes.Buffer
	over   bool
}

func (w *recorder) Header() http.Header { return w.header }

func (w *recorder) WriteHeader(status int) {
	if w.status == 0 {
		w.status = status
	}
}

func (w *recorder) Write(b []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	if w.body.Len()+len(b) > maxAnswer {
		w.over = true
		return 0, errFull
	}
	return w.body.Write(b)
}
