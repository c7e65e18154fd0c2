// Package rest owns the command line's requests to an installation's REST interface: retries, streams and error
// messages.
//
// A token is sent only to its installation, and over plain HTTP only to this machine. Redirects are not followed.
package rest

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
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

	"slipway/internal/platform/text"
)

// Config names the installation and the credential. Server is required.
type Config struct {
	Server string                                    // base URL, as returned by Origin
	Token  func(ctx context.Context) (string, error) // Optional: without it requests have no credential.
	CAFile string                                    // PEM file of additional roots. Optional.
	Notice io.Writer                                 // receives a line when a request waits. Optional.
	Agent  string                                    // the User-Agent. Optional: empty means slipway-cli.
}

// Client makes requests. It is safe for concurrent use.
type Client struct {
	c    Config
	http *http.Client
}

// Limits of a request.
const (
	answerTime = 60 * time.Second // until the response begins
	maxAnswer  = 64 << 20         // bytes
	maxLine    = 1 << 20          // bytes of one event
	maxWait    = 60 * time.Second // wait for a rate limit
	tries      = 4                // attempts if the connection breaks
)

// New returns a Client. It connects to nothing yet.
func New(c Config) (*Client, error) {
	origin, err := Origin(c.Server)
	if err != nil {
		return nil, err
	}
	c.Server, c.Agent = origin, cmp.Or(c.Agent, "slipway-cli")
	h, err := HTTP(c.CAFile)
	if err != nil {
		return nil, err
	}
	return &Client{c: c, http: h}, nil
}

// HTTP returns a client for an installation. It follows no redirects, which could send a token elsewhere.
func HTTP(caFile string) (*http.Client, error) {
	roots, err := x509.SystemCertPool()
	if err != nil {
		return nil, fmt.Errorf("read system roots: %w", err)
	}
	if caFile != "" {
		pem, err := os.ReadFile(caFile)
		if err != nil {
			return nil, fmt.Errorf("read CA file: %w", err)
		}
		if !roots.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("no certificate in %s", caFile)
		}
	}
	return &http.Client{
		Transport: &http.Transport{
			Proxy:                 http.ProxyFromEnvironment,
			TLSClientConfig:       &tls.Config{RootCAs: roots},
			ResponseHeaderTimeout: answerTime,
			ForceAttemptHTTP2:     true,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}, nil
}

// Origin normalizes an installation's base URL: https unless it is this machine, and without a path.
func Origin(server string) (string, error) {
	if !strings.Contains(server, "://") {
		scheme := "https://"
		if host, _, _ := strings.Cut(server, ":"); loopback(host) {
			scheme = "http://"
		}
		server = scheme + server
	}
	u, err := url.Parse(server)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || u.User != nil || strings.Trim(u.Path, "/") != "" ||
		u.RawQuery != "" || u.Fragment != "" {
		return "", fmt.Errorf("%q is no address of a server: give one such as https://slipway.example", server)
	}
	if u.Scheme == "http" && !loopback(u.Hostname()) {
		return "", fmt.Errorf("%s is plain HTTP, over which anybody on the way can read your token: use https", server)
	}
	return u.Scheme + "://" + strings.ToLower(u.Host), nil
}

// loopback reports whether a host name is this machine.
func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || strings.HasSuffix(host, ".localhost") || ip != nil && ip.IsLoopback()
}

// Error is an unsuccessful response.
type Error struct {
	Status    int    `json:"-"`
	Message   string `json:"error"`
	Details   string `json:"details"`
	Code      string `json:"code"`
	RequestID string `json:"requestId"`
}

// Error returns the response's message.
func (e *Error) Error() string {
	sentence := cmp.Or(e.Message, "the server answers "+strconv.Itoa(e.Status))
	if e.Details != "" {
		sentence += ": " + e.Details
	}
	return sentence
}

// ErrUnreachable is returned if the server doesn't respond.
var ErrUnreachable = errors.New("the server can't be reached")

// Server returns the base URL.
func (c *Client) Server() string { return c.c.Server }

// Do makes a request below /api/v1 and returns the response. in is sent as JSON; nil sends no body. Requests that
// change something carry an Idempotency-Key, so that they are repeated safely if the connection breaks. Do waits up to
// a minute for a rate limit.
func (c *Client) Do(ctx context.Context, method, path string, in any) (json.RawMessage, error) {
	var body []byte
	if in != nil {
		var err error
		if body, err = json.Marshal(in); err != nil {
			return nil, err
		}
	}
	return c.Send(ctx, method, path, body)
}

// Send is [Client.Do] for a JSON body.
func (c *Client) Send(ctx context.Context, method, path string, body []byte) (json.RawMessage, error) {
	return c.SendOnce(ctx, method, path, "", body)
}

// SendOnce is [Client.Send] with the caller's Idempotency-Key: for a day the server returns the first response for the
// same request, even from another process. An empty key means a new one.
func (c *Client) SendOnce(ctx context.Context, method, path, key string, body []byte) (json.RawMessage, error) {
	if method == http.MethodPost && key == "" {
		key = rand.Text()
	}
	pause := 250 * time.Millisecond
	for try := 1; ; try++ {
		answer, err := c.once(ctx, method, path, key, body)
		var no *Error
		switch {
		case err == nil:
			return answer, nil
		case ctx.Err() != nil:
			return nil, context.Cause(ctx)
		case errors.As(err, &no):
			return nil, err
		case errors.Is(err, ErrUnreachable) && try < tries && (method != http.MethodPatch):
		default:
			return nil, err
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(pause):
		}
		pause *= 2
	}
}

func (c *Client) once(ctx context.Context, method, path, key string, body []byte) (json.RawMessage, error) {
	waited := false
	for {
		resp, err := c.request(ctx, method, path, key, "application/json", body)
		if err != nil {
			return nil, err
		}
		answer, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
		_ = resp.Body.Close()
		switch {
		case err != nil:
			return nil, fmt.Errorf("%w: the answer breaks off: %w", ErrUnreachable, err)
		case len(answer) > maxAnswer:
			return nil, errors.New("the server's answer is too large")
		case resp.StatusCode/100 == 2:
			return answer, nil
		case resp.StatusCode == http.StatusTooManyRequests && !waited:
			n, _ := strconv.Atoi(resp.Header.Get("Retry-After"))
			if wait := time.Duration(n) * time.Second; n > 0 && wait <= maxWait {
				waited = true
				if c.c.Notice != nil {
					fmt.Fprintf(c.c.Notice, "Rate limit reached. Next try in %d s.\n", n)
				}
				select {
				case <-ctx.Done():
					return nil, context.Cause(ctx)
				case <-time.After(wait):
				}
				continue
			}
		}
		return nil, refused(resp, answer)
	}
}

func refused(resp *http.Response, answer []byte) error {
	e := refusal(resp.StatusCode, answer)
	if resp.StatusCode/100 == 3 {
		e.Message, e.Details = "The server redirects to "+text.Clip(resp.Header.Get("Location"), maxSentence), "sign in at that address"
	}
	return e
}

// maxSentence caps the messages of an error, in bytes.
const maxSentence = 2 << 10

func refusal(status int, answer []byte) *Error {
	e := &Error{}
	_ = json.Unmarshal(answer, e) // stays empty for a proxy's error page
	e.Status, e.Message, e.Details = status, text.Clip(e.Message, maxSentence), text.Clip(e.Details, maxSentence)
	return e
}

func (c *Client) request(ctx context.Context, method, path, key, accept string, body []byte) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, c.c.Server+"/api/v1"+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if key != "" {
		req.Header.Set("Idempotency-Key", key)
	}
	req.Header.Set("Accept", accept)
	req.Header.Set("User-Agent", c.c.Agent)
	if c.c.Token != nil {
		token, err := c.c.Token(ctx)
		if err != nil {
			return nil, err
		}
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnreachable, err)
	}
	return resp, nil
}

// Get makes a request and parses the response into out.
func (c *Client) Get(ctx context.Context, path string, out any) error {
	answer, err := c.Do(ctx, http.MethodGet, path, nil)
	if err != nil {
		return err
	}
	return json.Unmarshal(answer, out)
}

// List returns the entries of all pages of a list.
func (c *Client) List(ctx context.Context, path string) ([]json.RawMessage, error) {
	sep := "?"
	if strings.Contains(path, "?") {
		sep = "&"
	}
	var all []json.RawMessage
	for page := 1; ; page++ {
		var got struct {
			Data       []json.RawMessage
			Pagination struct{ TotalPages int }
		}
		if err := c.Get(ctx, fmt.Sprintf("%s%slimit=100&page=%d", path, sep, page), &got); err != nil {
			return nil, err
		}
		all = append(all, got.Data...)
		if page >= got.Pagination.TotalPages {
			return all, nil
		}
	}
}

// Event is one of a stream (server-sent events).
type Event struct {
	ID, Name string
	Data     []byte
}

// Stream calls each with the events of a stream until it ends, ctx ends, or each fails. If the connection breaks, it
// resumes after the last event.
func (c *Client) Stream(ctx context.Context, path string, each func(Event) error) error {
	last, pause := "", 250*time.Millisecond
	for {
		ended, err := c.stream(ctx, path, &last, func(e Event) error { pause = 250 * time.Millisecond; return each(e) })
		if ended || err != nil && !errors.Is(err, ErrUnreachable) {
			return err
		}
		if pause > 30*time.Second {
			return cmp.Or(err, ErrUnreachable)
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(pause):
		}
		pause *= 2
	}
}

// stream reads one connection. ended reports that the stream is complete.
func (c *Client) stream(ctx context.Context, path string, last *string, each func(Event) error) (ended bool, err error) {
	if *last != "" {
		sep := "?"
		if strings.Contains(path, "?") {
			sep = "&"
		}
		path += sep + "after=" + url.QueryEscape(*last)
	}
	resp, err := c.request(ctx, http.MethodGet, path, "", "text/event-stream", nil)
	if err != nil {
		return false, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		answer, _ := io.ReadAll(io.LimitReader(resp.Body, maxLine))
		return true, refused(resp, answer)
	}
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, maxLine)
	var e Event
	for lines.Scan() {
		line := lines.Text()
		field, value, _ := strings.Cut(line, ":")
		value = strings.TrimPrefix(value, " ")
		switch {
		case line == "" && (e.Name != "" || e.Data != nil):
			if e.ID != "" {
				*last = e.ID
			}
			if err := each(e); err != nil {
				return true, err
			}
			if e.Name == "end" {
				return true, nil
			}
			e = Event{}
		case field == "id":
			e.ID = value
		case field == "event":
			e.Name = value
		case field == "data":
			e.Data = append(e.Data, value...)
		}
	}
	if ctx.Err() != nil {
		return true, context.Cause(ctx)
	}
	return false, nil
}

// Download writes the response for a path below /api/v1 to w. After an error, what was written is incomplete.
func (c *Client) Download(ctx context.Context, path, accept string, w io.Writer) error {
	resp, err := c.request(ctx, http.MethodGet, path, "", accept, nil)
	if err != nil {
		return cmp.Or(context.Cause(ctx), err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		answer, _ := io.ReadAll(io.LimitReader(resp.Body, maxLine))
		return refused(resp, answer)
	}
	from := &source{ReadCloser: resp.Body}
	_, err = io.Copy(w, from)
	if from.err != nil {
		return cmp.Or(context.Cause(ctx), fmt.Errorf("%w: the download broke off", ErrUnreachable))
	}
	return err
}
