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

// request holds what is known of a request by the time a handler runs.
type request struct {
	id     string
	Addr   netip.Addr // of the client; invalid when it has none
	Caller account.Caller
	Body   []byte
	HTTP   *http.Request
	Push   *pushes.Settings // of the Git hook that is called; nil: none
	hook   string           // what a call of a hook that there is counts under; empty: there is none
}

type requestKey struct{}

// From returns the request that ctx belongs to. Every handler has one.
func From(ctx context.Context) *request {
	if r, ok := ctx.Value(requestKey{}).(*request); ok {
		return r
	}
	return &request{}
}

// response notes whether an answer has begun: after that an error can only end it.
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

// Unwrap lets http.ResponseController reach the connection.
func (w *response) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// serve is the way every request goes.
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
			panic(http.ErrAbortHandler) // the connection ends: half an answer must not look whole
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

// Serves reports whether a path belongs to the API or its reference, and not to the dashboard.
func Serves(p string) bool { return forPrograms(p) || under(p, "/docs") }

// forPrograms reports whether a path is answered in JSON. One that only leads below /api once
// it is cleaned, such as //api/v1/sites after a base URL with a slash at its end, is a
// program's mistake too.
func forPrograms(p string) bool {
	for _, p := range []string{p, path.Clean("/" + p)} {
		if under(p, "/api") || under(p, "/hooks") {
			return true
		}
	}
	return false
}

// withoutSlash takes a slash at the end of a path for nothing: /sites/ is /sites.
func withoutSlash(r *http.Request) *http.Request {
	trimmed, ok := strings.CutSuffix(r.URL.Path, "/")
	raw, plain := strings.CutSuffix(r.URL.EscapedPath(), "/") // %2f is no slash (RFC 3986 §2.2)
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

// serveAPI answers in JSON, whatever happens.
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

// allowOrigins lets pages of any origin read an answer: a key in the Authorization header
// is the only credential, and browsers add none by themselves (Fetch, CORS protocol).
// There is no Access-Control-Allow-Credentials, so cookies are never sent.
func allowOrigins(h http.Header) {
	h.Set("Access-Control-Allow-Origin", "*")
	h.Set("Access-Control-Expose-Headers",
		"Allow, Idempotent-Replayed, Retry-After, WWW-Authenticate, X-RateLimit-Limit, X-RateLimit-Remaining, "+
			"X-RateLimit-Reset, X-Request-Id")
}

// preflight reports whether a browser asks what it may send.
func preflight(r *http.Request) bool {
	return r.Method == http.MethodOptions && r.Header.Get("Origin") != "" &&
		r.Header.Get("Access-Control-Request-Method") != "" && under(r.URL.Path, "/api/v1")
}

// public reports whether a path may be asked for without a key.
func public(p string) bool {
	return p == "/api/v1/openapi.json" || under(p, "/api/v1/clients") || !under(p, "/api/v1")
}

// Hook is one kind of addresses below /hooks. They need no key: the path is the credential.
type Hook interface {
	// Is reports whether a path has the form of such an address.
	Is(path string) bool
	// Key returns what a call is counted under: the hook when there is one, so that one address (a CI's) may
	// call many, else false for the caller's address, so that guessing has a limit.
	Key(ctx context.Context, r *http.Request) (string, bool)
	// Most returns how many bytes the body of a call may have: MaxBody, or more where those over it wait for their turn.
	Most() int
}

// AddHook lets a kind of hooks be called.
func (a *API) AddHook(h Hook) { a.hooks = append(a.hooks, h) }

// AppPrefix begins what calls of GitHub Apps are counted under.
const AppPrefix = "app:"

// appShare is how many times an API key's rate limit a GitHub App's webhook has: it speaks
// for all sites.
const appShare = 20

// authenticate finds out who is asking, and under which key the request is counted:
// the API key, the deploy hook, else the client's address (IPv6 by /64, for one machine
// has as many addresses as it likes in it).
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
		return "grant:" + c.Grant, nil // not the token: refreshing it buys no new window
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

// Holds is nil while what the caller came with still lets them in: for answers that stay open, and
// requests that take long to come.
func (a *API) Holds(ctx context.Context, c account.Caller) error {
	if c.Grant != "" {
		return a.OAuth.Holds(ctx, c)
	}
	return a.Accounts.Holds(ctx, c)
}

// HoldTx has the revocation of what the caller came with wait until the transaction ends, or is an Unauthorized fault once it
// was revoked. Each transaction in which a caller changes something begins with it.
func (a *API) HoldTx(ctx context.Context, tx *db.Tx, c account.Caller) error {
	if c.Grant != "" {
		return a.OAuth.HoldTx(ctx, tx, c)
	}
	return account.HoldTx(ctx, tx, c.Actor(netip.Addr{}))
}

// prepare checks what every request must keep to, and reads the body.
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
		if strings.Join(values, "") == "" { // ?type= is no filter
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
		err = a.Holds(r.Context(), req.Caller) // a body may take half a minute, in which the key is revoked
	}
	return err
}

var errNoPath = fault.New(fault.NotFound, "path_not_found", "Path not found", "see the API reference at /docs")

// dispatch finds the route, and answers 404, 405 and OPTIONS as JSON where there is none.
// What the key lacks is said before what is wrong with the request.
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

// asserts is nil where the team that the query names, if it does, is the one that the credential acts for. It chooses
// nothing: the credential does.
func asserts(r *http.Request, c account.Caller) error {
	if !strings.Contains(r.URL.RawQuery, "teamId") { // nearly always
		return nil
	}
	for _, name := range r.URL.Query()["teamId"] {
		if name != "" && (c.Team == "" || name != c.Team && name != c.Slug) {
			return ErrMismatch(c, name)
		}
	}
	return nil
}

// setWindow sets both families of headers. The first is assigned, not Set, because its
// documented spelling is not the one Go would make of it. RateLimit is
// draft-ietf-httpapi-ratelimit-headers.
func setWindow(h http.Header, win ratelimit.Window) {
	h["X-RateLimit-Limit"] = []string{strconv.Itoa(win.Limit)}
	h["X-RateLimit-Remaining"] = []string{strconv.Itoa(win.Remaining)}
	h["X-RateLimit-Reset"] = []string{strconv.FormatInt(win.Reset(), 10)}
	h["RateLimit-Policy"] = []string{`"default";q=` + strconv.Itoa(win.Limit) + `;w=60`}
	h["RateLimit"] = []string{`"default";r=` + strconv.Itoa(win.Remaining) + `;t=` + strconv.FormatInt(win.Wait(), 10)}
}
