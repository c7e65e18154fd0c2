// Package mcp owns the MCP server at /mcp: tools with which agents read and change the sites of an account.
//
// A tool makes one or a few requests to the REST API, in process and with the caller's own credential, so that
// scopes, limits, idempotency and the audit log are the API's. A caller sees the tools of their scopes alone.
// Responses are bounded, and text that somebody else may have written is marked as data. The package holds no
// session: every request stands alone.
package mcp

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"slipway/internal/platform/fair"
	siteid "slipway/internal/platform/id" // tools.go has a parameter named id
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/confirmation"
	"slipway/internal/web/api"
	"slipway/internal/web/ratelimit"
	"slipway/internal/web/requestinfo"
)

// Path is where the server is, below the base URL.
const Path = "/mcp"

// The bounds of a request.
const (
	maxBody   = 1 << 20 // bytes
	maxDepth  = 32      // of JSON
	rate      = 120     // requests of a credential within a minute, beside the API's own limit
	maxSites  = 100     // that an address names
	callTime  = 30 * time.Second
	allCalls  = 32
	ownerCall = 4
)

// Config names what the server stands on.
type Config struct {
	API     *api.API
	Limiter *ratelimit.Limiter
	Confirm *confirmation.Confirmations // of calls that can't be undone
	BaseURL string
	Version string

	TrustedProxies []netip.Prefix // whose X-Forwarded-For counts. Optional: none.

	Ready *atomic.Bool // false while starting or draining. Optional: always true.
	Log   *slog.Logger // Optional.
}

// Server is the MCP server. It is safe for concurrent use.
type Server struct {
	c      Config
	calls  *fair.Pool
	origin string // of our own pages
	sdk    http.Handler

	once  sync.Once
	tools []*tool // from once on; all reads them
}

// all returns the tools. They are made for the first agent that calls: what checks their arguments is 1.5 MB, which an
// installation without agents never needs.
func (s *Server) all() []*tool {
	s.once.Do(func() { s.tools = allTools() })
	return s.tools
}

// New starts nothing.
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
		// Behind a proxy the listener is a loopback address and the host is a public one. The control plane's own
		// check of hosts has let the request in.
		DisableLocalhostProtection: true,
	})
	return s
}

type serverKey struct{}

// serverOf returns the server that a request's caller sees.
func serverOf(r *http.Request) *sdk.Server {
	server, _ := r.Context().Value(serverKey{}).(*sdk.Server)
	return server
}

// metadata is the address of the resource's metadata (RFC 9728).
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
	// A browser's page of another origin has no business here: with a credential it would be an agent that nobody runs.
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
		addr: requestinfo.Addr(r, s.c.TrustedProxies),
	})
	s.sdk.ServeHTTP(w, r.WithContext(context.WithValue(ctx, serverKey{}, server)))
}

// message is the part of a message that is looked at before the SDK reads it.
type message struct {
	Method string
	Params struct{ Name string }
}

// read reads a request's body, and leaves it to be read again. Where it is no single message, it answers.
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
	_ = json.Unmarshal(body, &m) // what doesn't fit is the SDK's to refuse
	r.Body = io.NopCloser(strings.NewReader(string(body)))
	return m, true
}

// deeper reports whether JSON is nested deeper than so many levels.
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
			if depth++; depth > levels {
				return true
			}
		case c == '}' || c == ']':
			depth--
		}
	}
	return false
}

// narrowing reads the query of the server's address.
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

// scopes are those that a client asks for: of all tools, or of those that read.
func scopes(n account.Narrowing) string {
	if n.ReadOnly {
		return "sites:read deployments:read domains:read env:read backups:read"
	}
	return "sites:write deployments:write domains:write env:write backups:write"
}

// refuse answers with an error in the API's form.
func refuse(w http.ResponseWriter, status int, code, sentence, details string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	body := map[string]string{"error": sentence, "code": code, "requestId": w.Header().Get("X-Request-Id")}
	if details != "" {
		body["details"] = details
	}
	_ = json.NewEncoder(w).Encode(body) // a client that is gone is no error of ours
}
