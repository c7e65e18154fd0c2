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

// ForMCP returns a context whose requests are those of the MCP server: with tokens for it, and with no more of their
// rights than n leaves.
func ForMCP(ctx context.Context, n account.Narrowing) context.Context {
	return context.WithValue(ctx, narrowingKey{}, n)
}

func narrowing(ctx context.Context) (account.Narrowing, bool) {
	n, ok := ctx.Value(narrowingKey{}).(account.Narrowing)
	return n, ok
}

// Admit returns who makes a request to the MCP server, and the key under which it is counted. Where nobody may, it
// answers, as the API does to a request without a valid credential, and ok is false. The request's id is in w's header.
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

// authenticateToken returns the caller of an access token, at the resource that the request is for.
func (a *API) authenticateToken(ctx context.Context, secret string, req *request) (account.Caller, error) {
	at := oauth.ForAPI
	if _, ok := narrowing(ctx); ok {
		at = oauth.ForMCP
	}
	return a.OAuth.AuthenticateFor(ctx, at, secret, req.Addr)
}

// narrowed returns the caller with what the request's narrowing leaves of their rights.
func narrowed(ctx context.Context, c account.Caller) (account.Caller, error) {
	n, ok := narrowing(ctx)
	if !ok {
		return c, nil
	}
	c.Via = strings.TrimSpace(c.Via + " (MCP)") // for the audit log
	return c.Narrowed(n)
}
