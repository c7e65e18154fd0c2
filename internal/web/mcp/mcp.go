// Package mcp owns the MCP server at /mcp: tools with which agents read and change the sites of an account.
//
// A tool makes one or a few in-process requests to the REST API with the caller's own credential, so that the API's
// scopes, limits, idempotency and audit log apply. Callers only see the tools of their scopes. Results are limited in
// size, and text that may come from others is marked as untrusted. The package keeps no session: every request is
// independent.
package mcp

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"slipway/internal/edge/front"
	"slipway/internal/platform/fair"
	siteid "slipway/internal/platform/id" // tools.go has a parameter named id
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/confirmation"
	"slipway/internal/web/api"
	"slipway/internal/web/ratelimit"
	"slipway/internal/web/requestinfo"
)

// Path is the server's path below the base URL.
const Path = "/mcp"

// Limits of requests.
const (
	maxBody   = 1 << 20 // bytes
	maxDepth  = 32      // of JSON
	rate      = 120     // requests per credential and minute, besides the API's own limit
	maxSites  = 100     // sites named in the server's URL
	callTime  = 30 * time.Second
	allCalls  = 32
	ownerCall = 4
)

type Config struct {
	API     *api.API
	Limiter *ratelimit.Limiter
	Confirm *confirmation.Confirmations // of irreversible calls
	BaseURL string
	Version string

	TrustedProxies front.Proxies // which name the client. Optional: none.

	Ready *atomic.Bool // false while starting or draining. Optional: always true.
	Log   *slog.Logger // Optional.
}

// Server is the MCP server. It is safe for concurrent use.
type Server struct {
	c      Config
	calls  *fair.Pool
	origin string // of the dashboard's pages
	sdk    http.Handler

	once  sync.Once
	tools []*tool // set by once; use all
}

// all returns the tools. It creates them on first use, since their argument validators take 1.5 MB that installations
// without agents don't need.
func (s *Server) all() []*tool {
	s.once.Do(func() { s.tools = allTools() })
	return s.tools
}

// New returns the server. It starts nothing.
func New(c Config) *Server {
	c.Log = cmp.Or(c.Log, slog.New(slog.DiscardHandler))
	c.BaseURL = strings.TrimRight(c.BaseURL, "/")
	if c.Ready == nil {
		c.Ready = new(atomic.Bool)
		c.Ready.Store(true)
	}
	s := &Server{
		c: c,
		// share: total 32 requests of agents answered at once; owner 4; edge 429 with Retry-After
		calls: fair.New(fair.Config{Places: allCalls, Owner: ownerCall}),
	}
	if u, err := url.Parse(c.BaseURL); err == nil {
		s.origin = u.Scheme + "://" + u.Host
	}
	s.sdk = sdk.NewStreamableHTTPHandler(serverOf, &sdk.StreamableHTTPOptions{
		Stateless: true, JSONResponse: true, MaxRequestBodyBytes: maxBody,
		// Behind a proxy the listener is on loopback while the host is public. The control plane has already checked
		// the host.
		DisableLocalhostProtection: true,
	})
	return s
}

type serverKey struct{}

// serverOf returns the SDK server for a request's caller.
func serverOf(r *http.Request) *sdk.Server {
	server, _ := r.Context().Value(serverKey{}).(*sdk.Server)
	return server
}

// metadata returns the URL of the protected resource metadata (RFC 9728).
func (s *Server) metadata() string {
	return s.c.BaseURL + "/.well-known/oauth-protected-resource" + Path
}

// ServeHTTP answers one message of a client.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("X-Request-Id", requestinfo.RequestID(r))
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "no-store")
	if !s.c.Ready.Load() {
		h.Set("Retry-After", "2")
		refuse(w, http.StatusServiceUnavailable, "unavailable", "The service is starting or stopping", "")
		return
	}
	// Pages of other origins must not act with a browser's credential.
	if origin := r.Header.Get("Origin"); origin != "" && origin != s.origin {
		refuse(w, http.StatusForbidden, "forbidden_origin", "Requests from this origin are not allowed",
			"connect with an MCP client instead of a web page")
		return
	}
	if r.Method != http.MethodPost {
		h.Set("Allow", http.MethodPost)
		refuse(w, http.StatusMethodNotAllowed, "method_not_allowed", "Method not allowed",
			"send messages with POST; this server has no sessions or streams")
		return
	}
	n, err := narrowing(r.URL.RawQuery)
	if err != nil {
		refuse(w, http.StatusBadRequest, "invalid_request", "Invalid address", err.Error())
		return
	}
	ctx := api.ForMCP(r.Context(), n)
	r = r.WithContext(ctx)
	caller, key, ok := s.c.API.Admit(w, r, s.metadata(), scopes(n))
	if !ok {
		return
	}
	win, err := s.c.Limiter.Take(ctx, "mcp:"+key, rate)
	switch {
	case err != nil:
		s.c.Log.ErrorContext(ctx, "request not counted", "err", err)
		h.Set("Retry-After", "2")
		refuse(w, http.StatusServiceUnavailable, "unavailable", "The service is overloaded", "try again in a moment")
		return
	case !win.Allowed:
		h.Set("Retry-After", strconv.FormatInt(win.Wait(), 10))
		refuse(w, http.StatusTooManyRequests, "rate_limited", "Too many requests", "the limit is "+strconv.Itoa(rate)+" messages per minute")
		return
	}
	done, ok := s.calls.Try(fair.Who{Owner: string(caller.Owner)})
	if !ok {
		h.Set("Retry-After", "1")
		refuse(w, http.StatusTooManyRequests, "too_many_calls", "Too many calls at once",
			"wait for running calls; an account can have "+strconv.Itoa(ownerCall))
		return
	}
	defer done()
	m, ok := s.read(w, r)
	if !ok {
		return
	}
	if t := s.tool(m.Params.Name); m.Method == "tools/call" && t != nil && !t.openTo(caller, n) {
		if !n.ReadOnly || t.reads {
			h.Set("WWW-Authenticate", `Bearer error="insufficient_scope", scope="`+string(t.scope)+`", resource_metadata="`+s.metadata()+`"`)
		}
		refuse(w, http.StatusForbidden, "scope_required", "The credential doesn't allow this tool", "the scope "+string(t.scope)+" is required")
		return
	}
	server := s.server(&call{
		api: s.c.API.Handler(), origin: r, caller: caller, narrowing: n, confirmations: s.c.Confirm, base: s.c.BaseURL,
		addr: s.c.TrustedProxies.Addr(r),
	})
	s.sdk.ServeHTTP(w, r.WithContext(context.WithValue(ctx, serverKey{}, server)))
}

// message is the part of a message read before the SDK.
type message struct {
	Method string
	Params struct{ Name string }
}

// read reads a request's body and makes it readable again. If the body isn't a single message, it responds with an
// error and ok is false.
func (s *Server) read(w http.ResponseWriter, r *http.Request) (m message, ok bool) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		refuse(w, http.StatusRequestEntityTooLarge, "too_large", "The message is too large", "a message has at most 1 MiB")
		return m, false
	case err != nil:
		refuse(w, http.StatusBadRequest, "invalid_body", "The message can't be read", "")
		return m, false
	}
	start := strings.TrimLeft(string(body[:min(len(body), 64)]), " \t\r\n")
	switch {
	case strings.HasPrefix(start, "["):
		refuse(w, http.StatusBadRequest, "invalid_body", "Batches are not supported", "send one message per request")
		return m, false
	case deeper(body, maxDepth):
		refuse(w, http.StatusBadRequest, "invalid_body", "The message is nested too deeply", "at most "+strconv.Itoa(maxDepth)+" levels")
		return m, false
	case !json.Valid(body):
		refuse(w, http.StatusBadRequest, "invalid_body", "The message is not JSON", "")
		return m, false
	}
	_ = json.Unmarshal(body, &m) // the SDK reports errors
	r.Body = io.NopCloser(strings.NewReader(string(body)))
	return m, true
}

// deeper reports whether JSON is nested deeper than levels.
func deeper(body []byte, levels int) bool {
	depth, text := 0, false
	for i := 0; i < len(body); i++ {
		switch c := body[i]; {
		case text && c == '\\':
			i++
		case c == '"':
			text = !text
		case text:
		case c == '{' || c == '[':
			depth++
			if depth > levels {
				return true
			}
		case c == '}' || c == ']':
			depth--
		}
	}
	return false
}

// narrowing parses the query of the server's URL, which restricts the tools.
func narrowing(raw string) (n account.Narrowing, err error) {
	q, err := url.ParseQuery(raw)
	if err != nil {
		return n, errors.New("the query is malformed")
	}
	for name, values := range q {
		switch {
		case len(values) > 1:
			return n, errors.New(name + " must be given once")
		case name == "mode" && values[0] == "read":
			n.ReadOnly = true
		case name == "mode":
			return n, errors.New("mode must be read")
		case name == "sites":
			n.Sites = siteid.From[siteid.Site](strings.Split(values[0], ","))
			if len(n.Sites) > maxSites || slices.ContainsFunc(n.Sites, func(one siteid.Site) bool { return !isID(string(one)) }) {
				return n, errors.New("sites must be at most 100 site ids, separated by commas")
			}
		default:
			return n, errors.New("parameters are sites and mode")
		}
	}
	return n, nil
}

func isID(s string) bool {
	return s != "" && len(s) <= 100 && strings.Trim(s, "abcdefghijklmnopqrstuvwxyz0123456789_") == ""
}

// scopes returns the scopes that a client requests: those of all tools, or of reading ones.
func scopes(n account.Narrowing) string {
	if n.ReadOnly {
		return "sites:read deployments:read domains:read env:read backups:read"
	}
	return "sites:write deployments:write domains:write env:write backups:write"
}

// refuse responds with an error in the API's format.
func refuse(w http.ResponseWriter, status int, code, sentence, details string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	body := map[string]string{"error": sentence, "code": code, "requestId": w.Header().Get("X-Request-Id")}
	if details != "" {
		body["details"] = details
	}
	_ = json.NewEncoder(w).Encode(body) // errors mean that the client is gone
}
