// Package oauth owns the endpoints of the authorization server that programs call: token, device,
// revocation, introspection, registration, and the two metadata documents. What people see of it, the consent page and
// the page for devices, is the dashboard's; what is decided is package tenant/oauth's.
//
// Answers are JSON, never cached, and readable by pages of any origin, as RFC 9700 and browsers' clients
// expect: no cookie counts here. A request is counted by client network and app before its secrets are looked at.
package oauth

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"slipway/internal/deploy/actions"
	"slipway/internal/edge/front"
	"slipway/internal/platform/db"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/oauth"
	"slipway/internal/web/ratelimit"
	"slipway/internal/web/requestinfo"
)

// Config names what the endpoints stand on.
type Config struct {
	Server         *oauth.Server
	Workflows      *actions.Actions // Optional: without it no workflow gets a key.
	Limiter        *ratelimit.Limiter
	TrustedProxies front.Proxies // which name the client. Optional: none.
	Ready          *atomic.Bool  // false while starting or draining. Optional: always true.
	Log            *slog.Logger  // Optional.
}

// Endpoints serves them.
type Endpoints struct {
	c   Config
	mux *http.ServeMux
}

// maxForm is the most bytes of a request; the longest token is 53 characters.
const maxForm = 16 << 10

// Requests that one network may send within a minute: all, and of one app.
const (
	networkRate = 300
	appRate     = 120
)

const (
	serverMetadata   = "/.well-known/oauth-authorization-server"
	resourceMetadata = "/.well-known/oauth-protected-resource"
)

// New starts nothing.
func New(c Config) *Endpoints {
	c.Log = cmp.Or(c.Log, slog.New(slog.DiscardHandler))
	if c.Ready == nil {
		c.Ready = new(atomic.Bool)
		c.Ready.Store(true)
	}
	e := &Endpoints{c: c, mux: http.NewServeMux()}
	e.mux.HandleFunc("GET "+serverMetadata, e.describeServer)
	e.mux.HandleFunc("GET "+resourceMetadata, e.describeResource)
	e.mux.HandleFunc("GET "+resourceMetadata+"/api/v1", e.describeResource)
	e.mux.HandleFunc("GET "+resourceMetadata+"/mcp", e.describeMCP)
	e.mux.HandleFunc("POST /oauth/token", e.token)
	e.mux.HandleFunc("POST /oauth/device", e.device)
	e.mux.HandleFunc("POST /oauth/revoke", e.revoke)
	e.mux.HandleFunc("POST /oauth/introspect", e.introspect)
	if c.Server.Registers() {
		e.mux.HandleFunc("POST /oauth/register", e.register)
	}
	return e
}

// Serves reports whether a path is one of the endpoints.
func Serves(path string) bool {
	switch path {
	case serverMetadata, resourceMetadata, resourceMetadata + "/api/v1", resourceMetadata + "/mcp", "/oauth/token",
		"/oauth/device", "/oauth/revoke", "/oauth/introspect", "/oauth/register":
		return true
	}
	return false
}

// ServeHTTP answers one request.
func (e *Endpoints) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("X-Request-Id", requestinfo.RequestID(r))
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Access-Control-Allow-Origin", "*")
	h.Set("Cache-Control", "no-store")
	if r.Method == http.MethodOptions {
		h.Set("Access-Control-Allow-Methods", "GET, POST, OPTIONS")
		h.Set("Access-Control-Allow-Headers", "Authorization, Content-Type, MCP-Protocol-Version")
		h.Set("Access-Control-Max-Age", "7200")
		w.WriteHeader(http.StatusNoContent)
		return
	}
	if !e.c.Ready.Load() {
		h.Set("Retry-After", "2")
		e.refuse(w, r, &oauth.Error{
			Code: "temporarily_unavailable", Description: "The service is starting or stopping", Status: http.StatusServiceUnavailable,
		})
		return
	}
	if r.Method == http.MethodPost && !e.admit(w, r, "oauth:"+requestinfo.Network(e.addr(r)), networkRate) {
		return
	}
	e.mux.ServeHTTP(w, r)
}

func (e *Endpoints) addr(r *http.Request) netip.Addr { return e.c.TrustedProxies.Addr(r) }

// admit counts a request, and answers it where there were too many.
func (e *Endpoints) admit(w http.ResponseWriter, r *http.Request, key string, limit int) bool {
	win, err := e.c.Limiter.Take(r.Context(), key, limit)
	if err != nil {
		e.refuse(w, r, err)
		return false
	}
	if !win.Allowed {
		w.Header().Set("Retry-After", strconv.FormatInt(win.Wait(), 10))
		e.refuse(w, r, &oauth.Error{Code: "slow_down", Description: "Too many requests", Status: http.StatusTooManyRequests})
	}
	return win.Allowed
}

// refuse is the one place where errors become answers.
func (e *Endpoints) refuse(w http.ResponseWriter, r *http.Request, err error) {
	var known *oauth.Error
	if !errors.As(err, &known) {
		e.c.Log.ErrorContext(r.Context(), "request failed", "request", w.Header().Get("X-Request-Id"), "path", r.URL.Path, "err", err)
		known = &oauth.Error{Code: "server_error", Description: "Internal error", Status: http.StatusInternalServerError}
	}
	if known.Status == http.StatusUnauthorized {
		w.Header().Set("WWW-Authenticate", `Basic realm="oauth"`) // RFC 6749 §5.2
	}
	answer(w, known.Status, map[string]any{"error": known.Code, "error_description": known.Description})
}

func answer(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	json.NewEncoder(w).Encode(body) // a client that is gone is no error of ours
}

// parameters reads a request: each parameter once (RFC 6749 §3.2).
func (e *Endpoints) parameters(w http.ResponseWriter, r *http.Request) (url.Values, bool) {
	if r.PostForm != nil {
		return r.PostForm, true
	}
	kind, _, _ := strings.Cut(r.Header.Get("Content-Type"), ";")
	if !strings.EqualFold(strings.TrimSpace(kind), "application/x-www-form-urlencoded") {
		e.refuse(w, r, invalid("The body must be application/x-www-form-urlencoded"))
		return nil, false
	}
	r.Body = http.MaxBytesReader(w, r.Body, maxForm)
	if err := r.ParseForm(); err != nil {
		e.refuse(w, r, invalid("The body can't be read as a form of at most 16 KiB"))
		return nil, false
	}
	q := r.PostForm
	for name, values := range q {
		if len(values) > 1 && name != "resource" {
			e.refuse(w, r, invalid("A parameter is given more than once"))
			return nil, false
		}
	}
	return q, true
}

// form reads a request of a client, and who the client is.
func (e *Endpoints) form(w http.ResponseWriter, r *http.Request) (oauth.App, url.Values, bool) {
	q, ok := e.parameters(w, r)
	if !ok {
		return oauth.App{}, nil, false
	}
	id, secret := q.Get("client_id"), q.Get("client_secret")
	if header := r.Header.Get("Authorization"); header != "" {
		user, password, ok := r.BasicAuth()
		user, err1 := url.QueryUnescape(user) // RFC 6749 §2.3.1: both are form-encoded first
		password, err2 := url.QueryUnescape(password)
		switch {
		case !ok || err1 != nil || err2 != nil:
			e.refuse(w, r, invalid("The Authorization header must be Basic"))
			return oauth.App{}, nil, false
		case secret != "" || id != "" && id != user:
			e.refuse(w, r, invalid("The client must identify itself in one way"))
			return oauth.App{}, nil, false
		}
		id, secret = user, password
	}
	if id == "" {
		e.refuse(w, r, invalid("client_id is missing"))
		return oauth.App{}, nil, false
	}
	if !e.admit(w, r, "oauthapp:"+id[:min(len(id), 200)]+" "+requestinfo.Network(e.addr(r)), appRate) {
		return oauth.App{}, nil, false
	}
	find := e.c.Server.Client
	if r.URL.Path == "/oauth/device" && secret == "" {
		// Go's client sends no secret here. Who began doesn't matter: the tokens are for who polls, with the secret.
		find = func(ctx context.Context, id oauth.AppID, _ string) (oauth.App, error) {
			return e.c.Server.Named(ctx, id)
		}
	}
	a, err := find(r.Context(), oauth.AppID(id), secret)
	if err != nil {
		e.refuse(w, r, err)
		return oauth.App{}, nil, false
	}
	return a, q, true
}

func invalid(description string) *oauth.Error {
	return &oauth.Error{Code: "invalid_request", Description: description, Status: http.StatusBadRequest}
}

// deviceGrant is the grant type of RFC 8628 §3.4.
const deviceGrant = "urn:ietf:params:oauth:grant-type:device_code"

func (e *Endpoints) token(w http.ResponseWriter, r *http.Request) {
	q, ok := e.parameters(w, r)
	if !ok {
		return
	}
	if q.Get("grant_type") == exchangeGrant {
		e.exchange(w, r, q)
		return
	}
	a, q, ok := e.form(w, r)
	if !ok {
		return
	}
	if err := e.c.Server.CheckResources(q["resource"]); err != nil {
		e.refuse(w, r, err)
		return
	}
	var t oauth.Tokens
	var err error
	switch q.Get("grant_type") {
	case "authorization_code":
		redirect := q.Get("redirect_uri")
		if redirect == "" && len(a.RedirectURIs) == 1 {
			redirect = a.RedirectURIs[0]
		}
		t, err = e.c.Server.Redeem(r.Context(), a, q.Get("code"), redirect, q.Get("code_verifier"), q["resource"]...)
	case "refresh_token":
		t, err = e.c.Server.Refresh(r.Context(), a, q.Get("refresh_token"), q.Get("scope"), q["resource"]...)
	case deviceGrant:
		t, err = e.c.Server.PollDevice(r.Context(), a, q.Get("device_code"), q["resource"]...)
	case "":
		err = invalid("grant_type is missing")
	default:
		err = &oauth.Error{
			Code: "unsupported_grant_type", Status: http.StatusBadRequest,
			Description: "grant_type must be authorization_code, refresh_token or " + deviceGrant,
		}
	}
	if err != nil {
		e.refuse(w, r, err)
		return
	}
	answer(w, http.StatusOK, map[string]any{
		"access_token": t.Access, "token_type": "Bearer", "refresh_token": t.Refresh, "scope": t.Scopes.String(),
		"expires_in": max(0, int64(t.Expires.Sub(db.Now())/time.Second)),
	})
}

func (e *Endpoints) device(w http.ResponseWriter, r *http.Request) {
	a, q, ok := e.form(w, r)
	if !ok {
		return
	}
	addr := e.addr(r).Unmap().WithZone("")
	networks := requestinfo.Networks(addr)
	d, secret, err := e.c.Server.BeginDevice(r.Context(), a, q.Get("scope"), addr.String(), networks[len(networks)-1])
	if err != nil {
		e.refuse(w, r, err)
		return
	}
	answer(w, http.StatusOK, map[string]any{
		"device_code": secret, "user_code": oauth.FormatUserCode(d.Code), "verification_uri": e.c.Server.Issuer() + "/device",
		"expires_in": int64(d.Until.Sub(d.Since) / time.Second), "interval": int64(d.Interval / time.Second),
	})
}

func (e *Endpoints) revoke(w http.ResponseWriter, r *http.Request) {
	a, q, ok := e.form(w, r)
	if !ok {
		return
	}
	if q.Get("token") == "" {
		e.refuse(w, r, invalid("token is missing"))
		return
	}
	if err := e.c.Server.Revoke(r.Context(), a, q.Get("token")); err != nil {
		e.refuse(w, r, err)
		return
	}
	w.WriteHeader(http.StatusOK)
}

func (e *Endpoints) introspect(w http.ResponseWriter, r *http.Request) {
	a, q, ok := e.form(w, r)
	if !ok {
		return
	}
	if !a.Confidential {
		e.refuse(w, r, &oauth.Error{
			Code: "unauthorized_client", Description: "Only confidential apps may introspect tokens", Status: http.StatusForbidden,
		})
		return
	}
	i, err := e.c.Server.Introspect(r.Context(), a, q.Get("token"))
	if err != nil {
		e.refuse(w, r, err)
		return
	}
	if !i.Active {
		answer(w, http.StatusOK, map[string]any{"active": false})
		return
	}
	answer(w, http.StatusOK, map[string]any{
		"active": true, "scope": i.Scopes.String(), "client_id": a.ID, "token_type": map[string]string{"access": "Bearer"}[i.Kind],
		"sub": i.User, "owner": i.Owner, "aud": e.c.Server.ResourceOf(i.Audience), "iss": e.c.Server.Issuer(),
		"exp": i.Expires.Time().Unix(), "iat": i.Issued.Time().Unix(),
	})
}

// describeServer is the authorization server's metadata (RFC 8414 §2).
func (e *Endpoints) describeServer(w http.ResponseWriter, _ *http.Request) {
	iss := e.c.Server.Issuer()
	auth := []string{"none", "client_secret_basic", "client_secret_post"}
	var scopes []account.Scope
	for _, s := range account.AllScopes {
		if !slices.Contains(oauth.NotGrantable, s) {
			scopes = append(scopes, s)
		}
	}
	grants := []string{"authorization_code", "refresh_token", deviceGrant}
	if e.c.Workflows != nil {
		grants = append(grants, exchangeGrant)
	}
	w.Header().Set("Cache-Control", "public, max-age=3600")
	about := map[string]any{
		"issuer":                                         iss,
		"authorization_endpoint":                         iss + "/oauth/authorize",
		"token_endpoint":                                 iss + "/oauth/token",
		"device_authorization_endpoint":                  iss + "/oauth/device",
		"revocation_endpoint":                            iss + "/oauth/revoke",
		"introspection_endpoint":                         iss + "/oauth/introspect",
		"response_types_supported":                       []string{"code"},
		"response_modes_supported":                       []string{"query"},
		"grant_types_supported":                          grants,
		"code_challenge_methods_supported":               []string{"S256"},
		"token_endpoint_auth_methods_supported":          auth,
		"revocation_endpoint_auth_methods_supported":     auth,
		"introspection_endpoint_auth_methods_supported":  auth[1:],
		"scopes_supported":                               scopes,
		"authorization_response_iss_parameter_supported": true,
		"client_id_metadata_document_supported":          e.c.Server.ReadsDocuments(),
		"service_documentation":                          iss + "/docs",
	}
	if e.c.Server.Registers() {
		about["registration_endpoint"] = iss + "/oauth/register"
	}
	answer(w, http.StatusOK, about)
}

// describeResource is the API's metadata (RFC 9728 §2).
func (e *Endpoints) describeResource(w http.ResponseWriter, _ *http.Request) {
	e.describe(w, oauth.ForAPI, "Slipway API", account.SitesRead)
}

// describeMCP is the MCP server's metadata.
func (e *Endpoints) describeMCP(w http.ResponseWriter, _ *http.Request) {
	e.describe(w, oauth.ForMCP, "Slipway MCP server", account.SitesRead, account.DeploymentsRead)
}

// describe is a resource's metadata. Clients without a hint ask for every scope that is listed, so it lists the least.
func (e *Endpoints) describe(w http.ResponseWriter, a oauth.Audience, name string, scopes ...account.Scope) {
	w.Header().Set("Cache-Control", "public, max-age=3600")
	answer(w, http.StatusOK, map[string]any{
		"resource":                 e.c.Server.ResourceOf(a),
		"authorization_servers":    []string{e.c.Server.Issuer()},
		"scopes_supported":         scopes,
		"bearer_methods_supported": []string{"header"},
		"resource_name":            name,
		"resource_documentation":   e.c.Server.Issuer() + "/docs",
	})
}
