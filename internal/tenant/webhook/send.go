package webhook

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
)

// send makes one request. It never returns an error: what went wrong is the outcome.
func (w *Webhooks) send(ctx context.Context, f flight) outcome {
	o := outcome{flight: f, started: db.Now()}
	began := time.Now()
	parent := ctx
	ctx, cancel := context.WithTimeout(ctx, w.c.Timeout)
	defer cancel()
	err := w.exchange(ctx, f, &o)
	o.took = time.Since(began)
	switch {
	case err == nil:
		if o.status >= 300 && o.status <= 399 && o.status != http.StatusNotModified {
			o.err = errRedirect
		}
	case parent.Err() != nil:
		o.abandoned = true
	default:
		o.err = reason(ctx, err)
		if o.err == errUnreadable {
			w.c.Log.ErrorContext(ctx, "webhook secret not decrypted", "webhook", f.hook, "err", err)
		}
	}
	return o
}

// exchange sends and reads within one deadline.
func (w *Webhooks) exchange(ctx context.Context, f flight, o *outcome) error {
	keys, err := w.keys(f)
	if err != nil {
		return err
	}
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(c httptrace.GotConnInfo) {
		w.hosts.arrived(&o.flight, networkOf(c.Conn.RemoteAddr()), time.Now())
	}})
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, f.url, bytes.NewReader(f.body))
	if err != nil {
		return err
	}
	now := time.Now()
	req.Header = header(f, keys, now)
	o.request = "POST " + req.URL.RequestURI() + "\nHost: " + req.URL.Host + "\n" + headerText(req.Header)
	resp, err := w.c.Out.Transport.RoundTrip(req) // follows no redirect, has no cookies and no deadline but ours
	if err != nil {
		var dial *net.OpError
		if errors.As(err, &dial) && dial.Op == "dial" { // nobody listens there, but somebody is asked
			w.hosts.arrived(&o.flight, networkOf(dial.Addr), time.Now())
		}
		return err
	}
	defer resp.Body.Close()
	o.status = resp.StatusCode
	o.response = text([]byte(clip(resp.Proto+" "+resp.Status+"\n"+headerText(resp.Header), storedAnswer)))
	o.wait = retryAfter(resp.Header.Get("Retry-After"), now)
	// The head of the answer decides; its body is read for the log, as far as it comes.
	head := answers.Get().(*[storedAnswer]byte)
	defer answers.Put(head)
	n, err := io.ReadFull(resp.Body, head[:])
	o.answer = text(head[:n])
	if err == nil {
		io.CopyN(io.Discard, resp.Body, maxAnswer-storedAnswer) // so that the connection can be used again
	}
	return nil
}

// answers are buffers for the bodies of answers.
// share: total one for each request under way, Config.Slots (1,024); owner see hosts; edge more are made
var answers = sync.Pool{New: func() any { return new([storedAnswer]byte) }}

// keys opens the secrets that sign: the present one first, and the one before it while a
// rotation has both sign.
func (w *Webhooks) keys(f flight) (keys []string, err error) {
	for _, sealed := range []string{f.secret, f.previous} {
		if sealed == "" && len(keys) > 0 {
			break
		}
		key, err := w.c.Seal.Open(sealed, sealPurpose+string(f.hook))
		if err != nil {
			return nil, errSecret
		}
		keys = append(keys, string(key))
	}
	return keys, nil
}

// header makes the head of a request. While a rotation has two secrets sign,
// X-Service-Signature stays with the old one and webhook-signature carries both.
func header(f flight, keys []string, now time.Time) http.Header {
	at := strconv.FormatInt(now.Unix(), 10)
	standard := StandardSignature(keys[0], f.event, now, f.body)
	h := http.Header{
		"Content-Type":        {"application/json"},
		"User-Agent":          {"Slipway-Webhooks/1"},
		"X-Service-Signature": {Signature(keys[len(keys)-1], f.body)},
		"X-Service-Event":     {f.name},
		"X-Service-Delivery":  {string(f.id)},
		"X-Service-Timestamp": {at},
		"X-Service-Attempt":   {strconv.FormatInt(f.claims, 10)},
		HopHeader:             {strconv.Itoa(f.hops + 1)},
		"Webhook-Id":          {f.event},
		"Webhook-Timestamp":   {at},
	}
	if len(keys) > 1 {
		h["X-Service-Signature-Next"] = []string{Signature(keys[0], f.body)}
		standard += " " + StandardSignature(keys[1], f.event, now, f.body)
	}
	h["Webhook-Signature"] = []string{standard}
	return h
}

// headerText writes a header, one field a line, sorted by name.
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

func clip(s string, n int) string { return s[:min(len(s), n)] }

// retryAfter reads seconds or a date (RFC 9110 section 10.2.3); 0 when there is neither.
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

// text makes what both databases store as TEXT: UTF-8 without NUL.
func text(b []byte) string {
	return strings.ReplaceAll(strings.ToValidUTF8(string(b), "\uFFFD"), "\x00", "\uFFFD")
}
