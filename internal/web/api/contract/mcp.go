package contract

import (
	"context"
	"net/http"
	"strings"

	"slipway/internal/tenant/account"
	"slipway/internal/tenant/oauth"
)

// narrowingKey marks a request that the MCP server makes for its caller.
type narrowingKey struct{}

// ForMCP returns a context for requests of the MCP server: they accept tokens for the MCP server, with the rights that
// n leaves.
func ForMCP(ctx context.Context, n account.Narrowing) context.Context {
	return context.WithValue(ctx, narrowingKey{}, n)
}

func narrowing(ctx context.Context) (account.Narrowing, bool) {
	n, ok := ctx.Value(narrowingKey{}).(account.Narrowing)
	return n, ok
}

// Admit returns the caller of the MCP server and the key for rate limits. If the credential is missing or invalid, it
// writes the same answer as the API, and ok is false. w's header must have the request id.
func (a *API) Admit(w http.ResponseWriter, r *http.Request, metadata, scope string) (c account.Caller, key string, ok bool) {
	req := &request{id: w.Header().Get("X-Request-Id"), Addr: a.TrustedProxies.Addr(r), HTTP: r}
	ctx := context.WithValue(r.Context(), requestKey{}, req)
	key, err := a.authenticate(ctx, r, req)
	if err == nil && req.Caller.User != "" {
		return req.Caller, key, true
	}
	if err == nil {
		err = errMissingKey
	}
	p := a.problem(ctx, err)
	if win, errTaken := a.Limiter.Take(ctx, key, a.RateLimit); errTaken != nil {
		p = a.problem(ctx, errTaken)
	} else if !win.Allowed {
		p = a.problem(ctx, errTooMany(win))
	}
	if p.status == http.StatusUnauthorized && a.OAuth != nil {
		p.challenge = strings.TrimSpace(`resource_metadata="` + metadata + `", scope="` + scope + `"`)
		if p.Code != errMissingKey.Code {
			p.challenge += `, error="invalid_token"`
		}
	}
	writeProblem(w, *p)
	return c, key, false
}

// authenticateToken returns the caller of an access token for the requested resource.
func (a *API) authenticateToken(ctx context.Context, secret string, req *request) (account.Caller, error) {
	at := oauth.ForAPI
	if _, ok := narrowing(ctx); ok {
		at = oauth.ForMCP
	}
	return a.OAuth.AuthenticateFor(ctx, at, secret, req.Addr)
}

// narrowed returns the caller with the rights that the request's narrowing leaves.
func narrowed(ctx context.Context, c account.Caller) (account.Caller, error) {
	n, ok := narrowing(ctx)
	if !ok {
		return c, nil
	}
	c.Via = strings.TrimSpace(c.Via + " (MCP)") // for the audit log
	return c.Narrowed(n)
}
