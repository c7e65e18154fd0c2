package api

import (
	"context"
	"net/http"

	"slipway/internal/tenant/account"
	"slipway/internal/web/api/contract"
)

// ForMCP returns a context whose requests are those of the MCP server: with tokens for it, and with no more of their
// rights than n leaves.
func ForMCP(ctx context.Context, n account.Narrowing) context.Context { return contract.ForMCP(ctx, n) }

// Admit returns who makes a request to the MCP server, and the key under which it is counted. Where nobody may, it
// answers, as the API does to a request without a valid credential, and ok is false.
func (a *API) Admit(w http.ResponseWriter, r *http.Request, metadata, scope string) (c account.Caller, key string, ok bool) {
	return a.contract.Admit(w, r, metadata, scope)
}
