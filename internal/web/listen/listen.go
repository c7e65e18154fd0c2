// Package listen owns the developer's end of a webhook listener: it starts a listener through an installation's REST
// API, verifies its deliveries, prints them and forwards them to a local port.
//
// It runs on a developer's machine with the developer's key, and only connects to the installation and the target that
// the developer named. It doesn't follow redirects, and sends the key over plain HTTP only to this machine.
package listen

import (
	"bytes"
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"slipway/internal/platform/signature"
)

// Config describes what to listen for. BaseURL and Key are required.
type Config struct {
	BaseURL string // of the installation
	Key     string // API key with the scope webhooks:write
	CAFile  string // PEM file of additional roots to trust. Optional.

	Events  []string // Optional: defaults to all.
	SiteIDs []string // Optional: defaults to all.
	Secret  string   // Optional: generated if empty.
	Forward string   // a port of this machine or a URL. Optional: empty doesn't forward.
	JSON    bool     // print one JSON object per line instead of text

	Out io.Writer // deliveries
	Err io.Writer // everything else
}

// Timeouts and limits.
const (
	answerTime  = 30 * time.Second
	forwardTime = 15 * time.Second
	silentTime  = 60 * time.Second // a stream sends at least a comment every 15 s
	maxLine     = 1 << 20          // line of a stream, in bytes
	longestWait = 30 * time.Second // delay between reconnects
)

// Listener receives deliveries. It starts a new webhook listener when one has ended.
type Listener struct {
	c      Config
	base   *url.URL
	target string
	api    *http.Client
	local  *http.Client
}

// New validates the settings without connecting.
func New(c Config) (*Listener, error) {
	base, err := url.Parse(strings.TrimRight(c.BaseURL, "/"))
	if err != nil || base.Scheme != "https" && base.Scheme != "http" || base.Host == "" || base.User != nil {
		return nil, errors.New("--base-url must be the https:// address of a Slipway installation")
	}
	if base.Scheme == "http" && !loopback(base.Hostname()) {
		return nil, errors.New("--base-url must begin with https://: the API key would cross the network unencrypted")
	}
	if c.Key == "" {
		return nil, errors.New("an API key with the scope webhooks:write is needed: set SLIPWAY_TOKEN")
	}
	target, err := targetOf(c.Forward)
	if err != nil {
		return nil, err
	}
	roots, err := x509.SystemCertPool()
	if err != nil {
		return nil, fmt.Errorf("read system roots: %w", err)
	}
	if c.CAFile != "" {
		pem, err := os.ReadFile(c.CAFile)
		if err != nil {
			return nil, fmt.Errorf("read CA file: %w", err)
		}
		if !roots.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("no certificate in %s", c.CAFile)
		}
	}
	if c.Secret == "" {
		var b [32]byte
		rand.Read(b[:])
		c.Secret = "whsec_" + base64.StdEncoding.EncodeToString(b[:])
	}
	stay := func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &Listener{
		c: c, base: base, target: target,
		api: &http.Client{
			Transport: &http.Transport{
				Proxy:                 http.ProxyFromEnvironment,
				TLSClientConfig:       &tls.Config{RootCAs: roots},
				ResponseHeaderTimeout: answerTime,
			},
			CheckRedirect: stay,
		},
		local: &http.Client{Transport: &http.Transport{}, CheckRedirect: stay, Timeout: forwardTime},
	}, nil
}

// loopback reports whether a host name means this machine.
func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || strings.HasSuffix(host, ".localhost") || ip != nil && ip.IsLoopback()
}

// targetOf parses --forward: a port, host:port with a path, or a URL.
func targetOf(s string) (string, error) {
	if s == "" {
		return "", nil
	}
	if n, err := strconv.ParseUint(s, 10, 16); err == nil && n > 0 {
		return "http://127.0.0.1:" + s + "/", nil
	}
	if !strings.Contains(s, "://") {
		s = "http://" + s
	}
	u, err := url.Parse(s)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.Fragment != "" {
		return "", errors.New("--forward must be a port of this machine or a URL, such as 3000 or http://localhost:3000/hook")
	}
	return u.String(), nil
}

// refusal is a response of the installation that a retry won't change.
type refusal struct {
	status int
	text   string
}

func (r *refusal) Error() string { return r.text }

// Run listens until ctx ends, and then returns nil.
func (l *Listener) Run(ctx context.Context) error {
	id, after, wait := "", int64(0), time.Second
	defer func() {
		if id != "" {
			l.end(id)
		}
	}()
	for {
		var err error
		if id == "" {
			if id, err = l.start(ctx); err == nil {
				after = 0
			}
		}
		if err == nil {
			var more bool
			if more, err = l.follow(ctx, id, &after); more {
				wait = time.Second
			}
		}
		if ctx.Err() != nil {
			return nil
		}
		var r *refusal
		switch {
		case errors.As(err, &r) && r.status == http.StatusNotFound && id != "":
			fmt.Fprintln(l.c.Err, "The listener has ended: events since the last one may be missing. Starting another.")
			id = ""
		case errors.As(err, &r) && r.status != http.StatusTooManyRequests && r.status < 500:
			return err
		case err != nil:
			fmt.Fprintf(l.c.Err, "Disconnected: %s. Retrying in %s.\n", printable(err.Error()), wait)
		}
		if err == nil { // the service ended the stream, for example for a restart, and keeps deliveries
			wait = time.Second
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(wait):
		}
		wait = min(2*wait, longestWait)
	}
}

// call makes a request to the REST API; out may be nil.
func (l *Listener) call(ctx context.Context, method, path string, in, out any) error {
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	var body []byte
	if in != nil {
		var err error
		if body, err = json.Marshal(in); err != nil {
			return err
		}
	}
	resp, err := l.ask(ctx, method, path, body, nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if out == nil {
		return nil
	}
	return json.NewDecoder(io.LimitReader(resp.Body, maxLine)).Decode(out)
}

// ask sends a request and returns a successful response.
func (l *Listener) ask(ctx context.Context, method, path string, body []byte, header http.Header) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, l.base.JoinPath("api/v1").String()+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Authorization", "Bearer "+l.c.Key)
	req.Header.Set("User-Agent", "slipway webhooks listen")
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	for name, v := range header {
		req.Header[name] = v
	}
	resp, err := l.api.Do(req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode/100 == 2 {
		return resp, nil
	}
	defer resp.Body.Close()
	var said struct{ Error, Details string }
	json.NewDecoder(io.LimitReader(resp.Body, 64<<10)).Decode(&said)
	text := cmp.Or(said.Error, "HTTP "+strconv.Itoa(resp.StatusCode))
	if said.Details != "" {
		text += ": " + said.Details
	}
	return nil, &refusal{resp.StatusCode, printable(text)}
}

// start starts a listener and prints it.
func (l *Listener) start(ctx context.Context) (string, error) {
	in := map[string]any{"secret": l.c.Secret}
	if len(l.c.Events) > 0 {
		in["events"] = l.c.Events
	}
	if len(l.c.SiteIDs) > 0 {
		in["siteIds"] = l.c.SiteIDs
	}
	var made struct {
		ID     string
		Events []string
	}
	if err := l.call(ctx, "POST", "/webhook-listeners", in, &made); err != nil {
		return "", err
	}
	if made.ID == "" {
		return "", errors.New("the response has no listener")
	}
	to := ""
	if l.target != "" {
		to = ", forwarding to " + l.target
	}
	fmt.Fprintf(l.c.Err, "Listening for %s%s. Press Ctrl-C to stop.\nSigning secret: %s\n",
		printable(strings.Join(made.Events, ", ")), to, l.c.Secret)
	return made.ID, nil
}

// end stops a listener, even after ctx has ended.
func (l *Listener) end(id string) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	l.call(ctx, "DELETE", "/webhook-listeners/"+url.PathEscape(id), nil, nil) // if this fails, the listener expires
}

// offered is an event of the stream.
type offered struct {
	N                  int64
	ID, EventID, Event string
	Headers            map[string]string
	Body               string
}

// genuine reports whether both signatures are valid.
func (l *Listener) genuine(d offered) bool {
	h := http.Header{}
	for k, v := range d.Headers {
		h.Set(k, v)
	}
	at, err := strconv.ParseInt(h.Get("Webhook-Timestamp"), 10, 64)
	if err != nil || h.Get("Webhook-Id") != d.EventID {
		return false
	}
	body := []byte(d.Body)
	return hmac.Equal([]byte(h.Get("X-Service-Signature")), []byte(signature.Of(l.c.Secret, body))) &&
		hmac.Equal([]byte(h.Get("Webhook-Signature")), []byte(signature.Standard(l.c.Secret, d.EventID, time.Unix(at, 0), body)))
}
