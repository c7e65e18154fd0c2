package oauth

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"

	"slipway/internal/tenant/oauth"
	"slipway/internal/web/requestinfo"
)

// register takes apps that register themselves (RFC 7591 §3.1). It is there only where the operator has opened it.
func (e *Endpoints) register(w http.ResponseWriter, r *http.Request) {
	kind, _, _ := strings.Cut(r.Header.Get("Content-Type"), ";")
	if !strings.EqualFold(strings.TrimSpace(kind), "application/json") {
		e.refuse(w, r, unfit("The body must be application/json"))
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxForm))
	if err != nil {
		e.refuse(w, r, unfit("The body can't be read or has more than 16 KiB"))
		return
	}
	var in struct {
		Name         string   `json:"client_name"`
		Website      string   `json:"client_uri"`
		RedirectURIs []string `json:"redirect_uris"`
		Auth         string   `json:"token_endpoint_auth_method"`
	}
	if json.Unmarshal(body, &in) != nil {
		e.refuse(w, r, unfit("The body is not a JSON object of the expected shape"))
		return
	}
	switch in.Auth {
	case "":
		in.Auth = "client_secret_basic" // the default of RFC 7591 §2
	case "none", "client_secret_basic", "client_secret_post":
	default:
		e.refuse(w, r, unfit("token_endpoint_auth_method must be none, client_secret_basic or client_secret_post"))
		return
	}
	// The widest network that one customer of a provider has: of IPv6 a /48.
	networks := requestinfo.Networks(e.addr(r))
	a, secret, err := e.c.Server.Register(r.Context(), oauth.NewApp{
		Name: in.Name, Website: in.Website, RedirectURIs: in.RedirectURIs, Confidential: in.Auth != "none",
	}, networks[len(networks)-1])
	if err != nil {
		w.Header().Set("Retry-After", "3600") // read with 429 alone
		e.refuse(w, r, err)
		return
	}
	out := map[string]any{
		"client_id": a.ID, "client_id_issued_at": a.CreatedAt.Time().Unix(), "client_name": a.Name, "redirect_uris": a.RedirectURIs,
		"token_endpoint_auth_method": in.Auth, "response_types": []string{"code"},
		"grant_types": []string{"authorization_code", "refresh_token", deviceGrant},
	}
	if a.Website != "" {
		out["client_uri"] = a.Website
	}
	if secret != "" {
		out["client_secret"], out["client_secret_expires_at"] = secret, 0 // never
	}
	answer(w, http.StatusCreated, out)
}

func unfit(description string) *oauth.Error {
	return &oauth.Error{Code: "invalid_client_metadata", Description: description, Status: http.StatusBadRequest}
}
