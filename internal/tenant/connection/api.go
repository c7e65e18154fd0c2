package connection

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"slipway/internal/git/forge"
	"slipway/internal/platform/fault"
	"slipway/internal/platform/text"
)

// api is a client for one kind of Git provider.
type api interface {
	// user returns the name of the account that the token is for.
	user(ctx context.Context) (string, error)
	// repositories lists the repositories that the account can read, as owner/repo. A provider without search may
	// ignore search.
	repositories(ctx context.Context, search string) ([]Repository, error)
	// status reports a deployment's state on its commit. It returns the ID of the check run to pass to the next call,
	// or "" if the provider has none.
	status(ctx context.Context, f Facts, id string) (string, error)
	// record creates or updates the provider's deployment record and returns its ID, or "" if the provider has none.
	record(ctx context.Context, f Facts, id string) (string, error)
	// comment creates the comment on the pull request, or updates the comment with the ID, and returns its ID.
	comment(ctx context.Context, f Facts, id, text string) (string, error)
}

// home returns the base URL of a provider's host and the HTTP client that reaches it.
func (s *Connections) home(host string) (base string, client *http.Client) {
	base, client = "https://"+host, s.c.Out
	if to, ok := s.c.Hosts[host]; ok && strings.HasPrefix(to, "http") {
		base = strings.TrimRight(to, "/")
		if u, err := url.Parse(base); err == nil && s.c.Egress != nil {
			addr := u.Host
			if u.Port() == "" {
				addr += map[string]string{"http": ":80", "https": ":443"}[u.Scheme]
			}
			client = s.c.Egress.ClientTo(30*time.Second, addr)
		}
	}
	return base, client
}

// api returns a client that authenticates with k.
func (s *Connections) api(p forge.Provider, host string, k secret) api {
	return s.apiNoting(p, host, k, nil)
}

// apiNoting is api, and also stores the token's scopes from responses in scopes.
func (s *Connections) apiNoting(p forge.Provider, host string, k secret, scopes *string) api {
	base, client := s.home(host)
	w := wire{client: client, base: base, auth: "Bearer " + k.Token, scopes: scopes}
	switch p {
	case forge.GitHub:
		w.base = base + "/api/v3"
		if base == "https://github.com" {
			w.base = "https://api.github.com"
		}
		w.header = http.Header{"Accept": {"application/vnd.github+json"}, "X-Github-Api-Version": {"2022-11-28"}}
		return github{w}
	case forge.GitLab:
		w.base = base + "/api/v4"
		return gitlab{w}
	case forge.Bitbucket:
		w.base = base + "/2.0"
		if base == "https://bitbucket.org" {
			w.base = "https://api.bitbucket.org/2.0"
		}
		w.user, w.password = k.User, k.Token
		return bitbucket{w}
	}
	w.base, w.auth = base+"/api/v1", "token "+k.Token
	return gitea{w}
}

// Limits of requests to Git providers.
const (
	maxAnswer  = 4 << 20
	askTimeout = 20 * time.Second
)

// wire sends JSON or form requests to one Git provider.
type wire struct {
	client         *http.Client
	base           string
	auth           string
	user, password string // basic authentication instead of auth, if user is set
	header         http.Header
	scopes         *string // receives the token's scopes from responses. Optional.
}

// refusal is an unsuccessful response.
type refusal struct {
	status int
	text   string // the start of the body
	after  time.Duration
}

func (r *refusal) Error() string {
	return fmt.Sprintf("the Git provider answered %d: %s", r.status, r.text)
}

// lasting reports whether repeating the request would fail again.
func (r *refusal) lasting() bool {
	return r.status >= 400 && r.status < 500 && r.status != http.StatusTooManyRequests && r.status != http.StatusRequestTimeout &&
		r.status != http.StatusConflict &&
		r.after == 0
}

func isStatus(err error, status int) bool {
	var r *refusal
	return errors.As(err, &r) && r.status == status
}

// send makes a request and decodes the answer into out, which may be nil.
func (w wire) send(ctx context.Context, method, path string, body, out any) error {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	var sent io.Reader
	form, isForm := body.(url.Values)
	if isForm {
		sent = strings.NewReader(form.Encode())
	} else if body != nil {
		b, err := json.Marshal(body)
		if err != nil {
			return err
		}
		sent = bytes.NewReader(b)
	}
	r, err := http.NewRequestWithContext(ctx, method, w.base+path, sent)
	if err != nil {
		return fmt.Errorf("ask Git provider: %w", err)
	}
	for name, v := range w.header {
		r.Header[name] = v
	}
	if r.Header.Get("Accept") == "" {
		r.Header.Set("Accept", "application/json")
	}
	r.Header.Set("User-Agent", "Slipway")
	if isForm {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	} else if body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	if w.user != "" {
		r.SetBasicAuth(w.user, w.password)
	} else if w.auth != "" {
		r.Header.Set("Authorization", w.auth)
	}
	res, err := w.client.Do(r)
	if err != nil {
		return fmt.Errorf("ask Git provider: %w", err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer+1))
	if err != nil {
		return fmt.Errorf("ask Git provider: %w", err)
	}
	if res.StatusCode < 200 || res.StatusCode > 299 {
		e := &refusal{status: res.StatusCode, text: text.Line(string(b[:min(len(b), 2000)]), 300)}
		if secs, err := time.ParseDuration(res.Header.Get("Retry-After") + "s"); err == nil && secs > 0 {
			e.after = min(secs, time.Hour)
		}
		return e
	}
	if text := res.Header.Get("X-Oauth-Scopes"); text != "" && w.scopes != nil { // sent by GitHub and Bitbucket
		*w.scopes = text
	}
	if len(b) > maxAnswer {
		return errors.New("the Git provider's answer is over 4 MiB")
	}
	if out == nil {
		return nil
	}
	if err := json.Unmarshal(b, out); err != nil {
		return fmt.Errorf("read the Git provider's answer: %w", err)
	}
	return nil
}

// tell turns a provider's error into a fault that says what the user can do.
func tell(err error, host string) error {
	var r *refusal
	switch {
	case errors.As(err, &r) && (r.status == http.StatusUnauthorized || r.status == http.StatusForbidden):
		return fault.New(fault.Invalid, "token_refused", host+" refused the access token",
			"create one that may read repositories, set commit statuses and comment on pull requests")
	case errors.As(err, &r) && r.status == http.StatusNotFound:
		return fault.New(fault.Invalid, "invalid_connection", host+" doesn't answer as this kind of Git provider",
			"check the provider and the host")
	case errors.As(err, &r) && r.lasting():
		return fault.New(fault.Invalid, "forge_refused", fmt.Sprintf("%s answered %d", host, r.status), r.text)
	}
	return &fault.Error{
		Kind:       fault.Unavailable,
		Message:    host + " can't be reached at the moment",
		Details:    "check the host, or try again in a moment",
		Code:       "forge_unavailable",
		RetryAfter: 10 * time.Second,
	}
}

// repo escapes a repository's path, owner/repo, for a URL.
func repo(path string) string {
	parts := strings.Split(path, "/")
	for i, p := range parts {
		parts[i] = url.PathEscape(p)
	}
	return strings.Join(parts, "/")
}
