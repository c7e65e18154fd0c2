package api

import (
	"context"
	"net/http"

	"slipway/internal/tenant/account"
	"slipway/internal/web/api/contract"
)

// ForMCP returns a context for requests of the MCP server: they accept tokens for the MCP server, with the rights that
// n leaves.
func ForMCP(ctx context.Context, n account.Narrowing) context.Context { return contract.ForMCP(ctx, n) }

// Admit returns the caller of the MCP server and the key for rate limits. If the credential is missing or invalid, it
// writes the same answer as the API, and ok is false.
func (a *API) Admit(w http.ResponseWriter, r *http.Request, metadata, scope string) (c account.Caller, key string, ok bool) {
	return a.contract.Admit(w, r, metadata, scope)
}
