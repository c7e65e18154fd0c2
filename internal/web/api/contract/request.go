package contract

import (
	"context"
	"log/slog"
	"net/http"
	"net/netip"
	"net/url"
	"path"
	"runtime/debug"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"slipway/internal/deploy/pushes"
	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/platform/panics"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/oauth"
	"slipway/internal/web/ratelimit"
	"slipway/internal/web/requestinfo"
)

// request holds what is known about a request when its handler runs.
type request struct {
	id     string
	Addr   netip.Addr // of the client; invalid if unknown
	Caller account.Caller
	Body   []byte
	HTTP   *http.Request
	Push   *pushes.Settings // of the called Git hook; nil for other requests
	hook   string           // key for counting calls of an existing hook; else empty
}

type requestKey struct{}

// From returns the request of ctx. Every handler's context has one.
func From(ctx context.Context) *request {
	if r, ok := ctx.Value(requestKey{}).(*request); ok {
		return r
	}
	return &request{}
}

// response records whether an answer has begun: then an error can only abort it.
type response struct {
	http.ResponseWriter
	status int
}

func (w *response) WriteHeader(status int) {
	if w.status == 0 && status >= 200 {
		w.status = status
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *response) Write(b []byte) (int, error) {
	if w.status == 0 {
		w.status = http.StatusOK
	}
	return w.ResponseWriter.Write(b)
}

// Unwrap gives http.ResponseController access to the connection.
func (w *response) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// serve handles every request.
func (a *API) serve(rw http.ResponseWriter, r *http.Request) {
	w, begun := &response{ResponseWriter: rw}, time.Now()
	req := &request{id: requestinfo.RequestID(r), Addr: a.TrustedProxies.Addr(r), HTTP: r}
	r = r.WithContext(context.WithValue(r.Context(), requestKey{}, req))
	ctx := r.Context()
	w.Header().Set("X-Request-Id", req.id)
	w.Header().Set("X-Content-Type-Options", "nosniff")
	defer func() {
		switch v := recover(); {
		case v == nil:
		case v == http.ErrAbortHandler || w.status != 0:
			if v != http.ErrAbortHandler {
				_ = panics.Caught(v)
				a.Log.ErrorContext(ctx, "handler panicked", "request", req.id, "panic", v, "stack", string(debug.Stack()))
			}
			panic(http.ErrAbortHandler) // abort the connection: a partial answer must not look complete
		default:
			_ = panics.Caught(v)
			a.Log.ErrorContext(ctx, "handler panicked", "request", req.id, "panic", v, "stack", string(debug.Stack()))
			writeProblem(w, problem{
				status:    http.StatusInternalServerError,
				Message:   internalError,
				Code:      "internal_error",
				RequestID: req.id,
			})
		}
		a.Log.LogAttrs(ctx, slog.LevelDebug, "request", slog.String("request", req.id), slog.String("method", r.Method),
			slog.String("route", r.Pattern), slog.Int("status", w.status), slog.Duration("took", time.Since(begun)),
			slog.String("user", string(req.Caller.User)))
	}()
	if forPrograms(r.URL.Path) {
		r = withoutSlash(r)
		req.HTTP = r
		a.serveAPI(w, r, req)
		return
	}
	a.docs().ServeHTTP(w, r)
}

// Serves reports whether a path belongs to the API or its reference rather than the dashboard.
func Serves(p string) bool { return forPrograms(p) || under(p, "/docs") }

// forPrograms reports whether errors for a path are JSON. It includes paths that are only below /api after cleaning,
// such as //api/v1/sites, which programs send if their base URL ends in a slash.
func forPrograms(p string) bool {
	for _, p := range []string{p, path.Clean("/" + p)} {
		if under(p, "/api") || under(p, "/hooks") {
			return true
		}
	}
	return false
}

// withoutSlash removes a slash at the end of the path: /sites/ is /sites.
func withoutSlash(r *http.Request) *http.Request {
	trimmed, ok := strings.CutSuffix(r.URL.Path, "/")
	raw, plain := strings.CutSuffix(r.URL.EscapedPath(), "/") // %2f is not a slash (RFC 3986 §2.2)
	if !ok || !plain || trimmed != path.Clean(trimmed) {
		return r
	}
	other := *r
	u := *r.URL
	u.Path, u.RawPath = trimmed, raw
	other.URL = &u
	return &other
}

// under reports whether p is dir or below it.
func under(p, dir string) bool { return p == dir || strings.HasPrefix(p, dir+"/") }

// serveAPI serves JSON, including all errors.
func (a *API) serveAPI(w http.ResponseWriter, r *http.Request, req *request) {
	ctx := r.Context()
	w.Header().Set("Cache-Control", "no-store")
	if under(r.URL.Path, "/api/v1") {
		allowOrigins(w.Header())
	}
	key, authErr := a.authenticate(ctx, r, req)
	limit := a.RateLimit
	if strings.HasPrefix(key, AppPrefix) {
		limit *= appShare
	}
	win, err := a.Limiter.Take(ctx, key, limit)
	setWindow(w.Header(), win)
	switch {
	case !a.Ready.Load():
		a.Fail(w, r, &fault.Error{Kind: fault.Unavailable, Message: "The service is starting or stopping", RetryAfter: 2 * time.Second})
	case err != nil:
		a.Fail(w, r, err)
	case !win.Allowed:
		a.Fail(w, r, errTooMany(win))
	case authErr != nil:
		a.Fail(w, r, authErr)
	default:
		a.dispatch(w, r, req)
	}
}

func errTooMany(win ratelimit.Window) error {
	return &fault.Error{
		Kind:       fault.Limited,
		Message:    "Too many requests",
		Details:    "the limit is " + strconv.Itoa(win.Limit) + " requests per minute",
		RetryAfter: time.Duration(win.Wait()) * time.Second,
	}
}

// allowOrigins lets web pages of any origin read an answer (Fetch, CORS protocol). The key in the Authorization header
// is the only credential, and browsers never add it by themselves. Without Access-Control-Allow-Credentials, cookies
// aren't sent.
func allowOrigins(h http.Header) {
	h.Set("Access-Control-Allow-Origin", "*")
	h.Set("Access-Control-Expose-Headers",
		"Allow, Idempotent-Replayed, Retry-After, WWW-Authenticate, X-RateLimit-Limit, X-RateLimit-Remaining, "+
			"X-RateLimit-Reset, X-Request-Id")
}

// preflight reports whether the request is a CORS preflight.
func preflight(r *http.Request) bool {
	return r.Method == http.MethodOptions && r.Header.Get("Origin") != "" &&
		r.Header.Get("Access-Control-Request-Method") != "" && under(r.URL.Path, "/api/v1")
}

// public reports whether a path needs no key.
func public(p string) bool {
	return p == "/api/v1/openapi.json" || under(p, "/api/v1/clients") || !under(p, "/api/v1")
}

// Hook is a kind of URLs below /hooks. They need no key: the path is the credential.
type Hook interface {
	// Is reports whether a path has the form of this kind.
	Is(path string) bool
	// Key returns the rate limit key of a call: the hook if it exists, so that one address (a CI's) may call many. If
	// it returns false, the caller's address is the key, which limits guessing.
	Key(ctx context.Context, r *http.Request) (string, bool)
	// Most caps the bytes of a call's body: MaxBody, or more, where larger bodies wait for their turn.
	Most() int
}

// AddHook adds a kind of hooks.
func (a *API) AddHook(h Hook) { a.hooks = append(a.hooks, h) }

// AppPrefix begins the rate limit keys of GitHub Apps.
const AppPrefix = "app:"

// appShare is the multiple of an API key's rate limit that a GitHub App's webhook has, because it sends events for all
// sites.
const appShare = 20

// authenticate returns the caller and the rate limit key of a request: the API key, the deploy hook, or else the
// client's address (IPv6: its /64, because a machine usually has a whole one).
func (a *API) authenticate(ctx context.Context, r *http.Request, req *request) (key string, err error) {
	key = "addr:" + requestinfo.Network(req.Addr)
	if under(r.URL.Path, "/hooks") {
		for _, h := range a.hooks {
			if hook, ok := h.Key(ctx, r); ok {
				req.hook = hook
				return hook, nil
			}
		}
		return key, nil
	}
	if preflight(r) { // browsers send it without the key
		return key, nil
	}
	header := r.Header["Authorization"]
	if len(header) == 0 {
		if public(r.URL.Path) {
			return key, nil
		}
		return key, errMissingKey
	}
	scheme, secret, _ := strings.Cut(header[0], " ")
	if len(header) > 1 || !strings.EqualFold(scheme, "bearer") {
		return key, fault.New(fault.Unauthorized, "invalid_key", "Invalid Authorization header",
			"send one header: Authorization: Bearer slw_…")
	}
	secret = strings.TrimSpace(secret)
	if a.OAuth != nil && oauth.LooksLikeToken(secret) {
		c, err := a.authenticateToken(ctx, secret, req)
		if err == nil {
			c, err = narrowed(ctx, c)
		}
		if err != nil {
			return key, err
		}
		req.Caller = c
		return "grant:" + c.Grant, nil // not the token: refreshing it must not reset the limit
	}
	c, err := a.Accounts.Authenticate(ctx, secret, req.Addr)
	if err == nil {
		c, err = narrowed(ctx, c)
	}
	if err != nil {
		return key, err
	}
	req.Caller = c
	return "key:" + string(c.Key), nil
}

var errMissingKey = fault.New(fault.Unauthorized, "missing_key", "Missing API key", "send it as Authorization: Bearer slw_…")

// Holds returns nil while the caller's credential is valid. It is for streams and for requests that take long to
// arrive.
func (a *API) Holds(ctx context.Context, c account.Caller) error {
	if c.Grant != "" {
		return a.OAuth.Holds(ctx, c)
	}
	return a.Accounts.Holds(ctx, c)
}

// HoldTx makes a revocation of the caller's credential wait until the transaction ends. If the credential is already
// revoked, it returns an Unauthorized fault. Every transaction of a changing operation begins with it.
func (a *API) HoldTx(ctx context.Context, tx *db.Tx, c account.Caller) error {
	if c.Grant != "" {
		return a.OAuth.HoldTx(ctx, tx, c)
	}
	return account.HoldTx(ctx, tx, c.Actor(netip.Addr{}))
}

// prepare checks the rules for all requests and reads the body.
func (a *API) prepare(w http.ResponseWriter, r *http.Request, req *request, raw bool) (err error) {
	if !utf8.ValidString(r.URL.Path) || strings.ContainsRune(r.URL.Path, 0) {
		return errNoPath
	}
	q, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return &fault.Error{Kind: fault.Invalid, Message: "Malformed query string", Code: "malformed_query"}
	}
	empty := false
	for name, values := range q {
		if strings.Join(values, "") == "" { // ?type= is ignored
			delete(q, name)
			empty = true
		}
		for _, v := range append(values, name) {
			if !utf8.ValidString(v) || strings.ContainsRune(v, 0) {
				return fault.New(fault.Invalid, "malformed_query", "Malformed query string", "a query is UTF-8 without NUL")
			}
		}
	}
	if empty {
		r.URL.RawQuery = q.Encode()
	}
	if raw {
		return nil
	}
	if r.Method == http.MethodPost || r.Method == http.MethodPatch || r.Method == http.MethodPut ||
		r.Method == http.MethodDelete && r.ContentLength != 0 {
		if under(r.URL.Path, "/hooks") {
			req.Body, err = a.readAnyBody(w, r, req)
		} else {
			req.Body, err = ReadBody(w, r)
		}
	}
	if err == nil && len(req.Body) > 0 && req.Caller.User != "" {
		err = a.Holds(r.Context(), req.Caller) // the key may have been revoked while the body arrived
	}
	return err
}

var errNoPath = fault.New(fault.NotFound, "path_not_found", "Path not found", "see the API reference at /docs")

// dispatch finds the route, and answers 404, 405 and OPTIONS as JSON. It reports missing rights of the key before
// errors in the request.
func (a *API) dispatch(w http.ResponseWriter, r *http.Request, req *request) {
	if path.Clean(r.URL.Path) != r.URL.Path { // the mux would redirect
		a.Fail(w, r, errNoPath)
		return
	}
	if _, pattern := a.mux.Handler(r); pattern != "" {
		var err error
		route, ok := a.byPattern[pattern]
		if ok && !route.Open && !route.Hook {
			if err = asserts(r, req.Caller); err == nil {
				req.Caller, err = route.Permit(req.Caller)
			}
		}
		if err == nil {
			err = a.prepare(w, r, req, route.Raw)
		}
		if err != nil {
			a.Fail(w, r, err)
			return
		}
		a.mux.ServeHTTP(w, r)
		return
	}
	var allow []string
	for _, m := range []string{http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete} {
		other := *r
		other.Method = m
		if _, pattern := a.mux.Handler(&other); pattern != "" {
			allow = append(allow, m)
		}
	}
	if len(allow) == 0 {
		a.Fail(w, r, errNoPath)
		return
	}
	allow = append(allow, http.MethodOptions)
	w.Header().Set("Allow", strings.Join(allow, ", "))
	if preflight(r) {
		h := w.Header()
		h.Set("Access-Control-Allow-Methods", strings.Join(allow, ", "))
		h.Set("Access-Control-Allow-Headers", "Authorization, Content-Type, Idempotency-Key, Last-Event-ID, X-Request-Id")
		h.Set("Access-Control-Max-Age", "7200")
	}
	if r.Method == http.MethodOptions {
		w.WriteHeader(http.StatusNoContent)
		return
	}
	writeProblem(w, problem{
		status: http.StatusMethodNotAllowed, Message: "Method not allowed",
		Details: "allowed methods: " + strings.Join(allow, ", "), Code: "method_not_allowed", RequestID: From(r.Context()).id,
	})
}

// asserts returns a fault if the query's teamId isn't the credential's team. The parameter can't choose another team.
func asserts(r *http.Request, c account.Caller) error {
	if !strings.Contains(r.URL.RawQuery, "teamId") { // the usual case
		return nil
	}
	for _, name := range r.URL.Query()["teamId"] {
		if name != "" && (c.Team == "" || name != c.Team && name != c.Slug) {
			return ErrMismatch(c, name)
		}
	}
	return nil
}

// setWindow sets both families of rate limit headers. The first is assigned directly, because Set would change its
// documented spelling. RateLimit is from draft-ietf-httpapi-ratelimit-headers.
func setWindow(h http.Header, win ratelimit.Window) {
	h["X-RateLimit-Limit"] = []string{strconv.Itoa(win.Limit)}
	h["X-RateLimit-Remaining"] = []string{strconv.Itoa(win.Remaining)}
	h["X-RateLimit-Reset"] = []string{strconv.FormatInt(win.Reset(), 10)}
	h["RateLimit-Policy"] = []string{`"default";q=` + strconv.Itoa(win.Limit) + `;w=60`}
	h["RateLimit"] = []string{`"default";r=` + strconv.Itoa(win.Remaining) + `;t=` + strconv.FormatInt(win.Wait(), 10)}
}
