package delivery

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"slipway/internal/platform/db"
	"slipway/internal/platform/signature"
)

// Sender sends requests and counts them at their destinations. It is safe for concurrent use.
type Sender struct {
	Hosts   *Hosts
	Out     http.RoundTripper // without redirects and cookies
	Timeout time.Duration     // includes reading the response's body
}

// Send sends one request, signed with keys: the current one, and during a rotation also the previous one. Errors are
// part of the result. It sets r.Network to the connection's network.
func (s *Sender) Send(ctx context.Context, r *Request, keys []string) Result {
	out := Result{Started: db.Now()}
	began := time.Now()
	parent := ctx
	ctx, cancel := context.WithTimeout(ctx, s.Timeout)
	defer cancel()
	err := s.exchange(ctx, r, keys, &out)
	out.Took = time.Since(began)
	switch {
	case err == nil:
		if out.Status >= 300 && out.Status <= 399 && out.Status != http.StatusNotModified {
			out.Err = ReasonRedirect
		}
	case parent.Err() != nil:
		out.Abandoned = true
	default:
		out.Err = reason(ctx, err)
	}
	return out
}

// exchange sends the request and reads the response within one deadline.
func (s *Sender) exchange(ctx context.Context, r *Request, keys []string, out *Result) error {
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(c httptrace.GotConnInfo) {
		s.Hosts.arrived(r, networkOf(c.Conn.RemoteAddr()), time.Now())
	}})
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, r.Url, bytes.NewReader(r.Body))
	if err != nil {
		return err
	}
	now := time.Now()
	req.Header = Header(*r, keys, now)
	out.RequestHead = "POST " + req.URL.RequestURI() + "\nHost: " + req.URL.Host + "\n" + headerText(req.Header)
	resp, err := s.Out.RoundTrip(req)
	if err != nil {
		var dial *net.OpError
		if errors.As(err, &dial) && dial.Op == "dial" { // refused: the target counts even without a connection
			s.Hosts.arrived(r, networkOf(dial.Addr), time.Now())
		}
		return err
	}
	defer resp.Body.Close()
	out.Status = resp.StatusCode
	head := resp.Proto + " " + resp.Status + "\n" + headerText(resp.Header)
	out.AnswerHead = text([]byte(head[:min(len(head), StoredAnswer)]))
	out.Wait = retryAfter(resp.Header.Get("Retry-After"), now)
	// The status decides. The body is only for the log.
	body := answers.Get().(*[StoredAnswer]byte)
	defer answers.Put(body)
	n, err := io.ReadFull(resp.Body, body[:])
	out.Answer = text(body[:n])
	if err == nil {
		io.CopyN(io.Discard, resp.Body, maxAnswer-StoredAnswer) // so that the connection can be reused
	}
	return nil
}

const (
	maxAnswer    = 64 << 10
	StoredAnswer = 4 << 10
)

// answers holds buffers for response bodies.
// share: total one for each request under way, Config.Slots (1,024); owner see hosts; edge more are made
var answers = sync.Pool{New: func() any { return new([StoredAnswer]byte) }}

// Header returns a request's header. During a rotation X-Service-Signature is made with the old secret, and
// webhook-signature contains both signatures.
func Header(f Request, keys []string, now time.Time) http.Header {
	at := strconv.FormatInt(now.Unix(), 10)
	standard := signature.Standard(keys[0], f.Event, now, f.Body)
	h := http.Header{
		"Content-Type":        {"application/json"},
		"User-Agent":          {"Slipway-Webhooks/1"},
		"X-Service-Signature": {signature.Of(keys[len(keys)-1], f.Body)},
		"X-Service-Event":     {f.Name},
		"X-Service-Delivery":  {string(f.Id)},
		"X-Service-Timestamp": {at},
		"X-Service-Attempt":   {strconv.FormatInt(f.Number, 10)},
		HopHeader:             {strconv.Itoa(f.Hops + 1)},
		"Webhook-Id":          {f.Event},
		"Webhook-Timestamp":   {at},
	}
	if len(keys) > 1 {
		h["X-Service-Signature-Next"] = []string{signature.Of(keys[0], f.Body)}
		standard += " " + signature.Standard(keys[1], f.Event, now, f.Body)
	}
	h["Webhook-Signature"] = []string{standard}
	return h
}

// headerText formats a header with one field per line, sorted by name.
func headerText(h http.Header) string {
	var space [24]string
	names, size := space[:0], 0
	for name, values := range h {
		names = append(names, name)
		for _, v := range values {
			size += len(name) + len(v) + len(": \n")
		}
	}
	slices.Sort(names)
	var b strings.Builder
	b.Grow(size)
	for _, name := range names {
		for _, v := range h[name] {
			b.WriteString(name)
			b.WriteString(": ")
			b.WriteString(v)
			b.WriteByte('\n')
		}
	}
	return b.String()
}

// retryAfter parses seconds or a date (RFC 9110 §10.2.3), or returns 0.
func retryAfter(v string, now time.Time) time.Duration {
	if v == "" {
		return 0
	}
	if n, err := strconv.ParseUint(v, 10, 31); err == nil {
		return time.Duration(n) * time.Second
	}
	if t, err := http.ParseTime(v); err == nil {
		return max(t.Sub(now), 0)
	}
	return 0
}

// text makes b valid for TEXT in both databases: UTF-8 without NUL.
func text(b []byte) string {
	return strings.ReplaceAll(strings.ToValidUTF8(string(b), "\uFFFD"), "\x00", "\uFFFD")
}
