package oauth

import (
	"net/http"
	"net/url"
	"time"

	"slipway/internal/platform/db"
	"slipway/internal/tenant/oauth"
	"slipway/internal/tenant/site"
)

// The words of RFC 8693 §3 for exchanging a token.
const (
	exchangeGrant = "urn:ietf:params:oauth:grant-type:token-exchange"
	idToken       = "urn:ietf:params:oauth:token-type:id_token"
	accessToken   = "urn:ietf:params:oauth:token-type:access_token"
)

// exchange gives a workflow of GitHub Actions a key for one site in return for its ID token (RFC 8693 §2). No client has
// an id here: the token says who asks.
func (e *Endpoints) exchange(w http.ResponseWriter, r *http.Request, q url.Values) {
	var err error
	for name := range q {
		switch name {
		case "grant_type", "subject_token", "subject_token_type", "requested_token_type", "audience":
		default:
			err = invalid("A token exchange takes subject_token, subject_token_type and audience alone")
		}
	}
	requested := q.Get("requested_token_type")
	switch {
	case err != nil:
	case e.c.Workflows == nil:
		err = &oauth.Error{Code: "unsupported_grant_type", Status: http.StatusBadRequest, Description: "This installation exchanges no tokens"}
	case q.Get("subject_token") == "" || q.Get("subject_token_type") != idToken:
		err = invalid("subject_token must be an ID token, and subject_token_type " + idToken)
	case requested != "" && requested != accessToken:
		err = invalid("requested_token_type must be " + accessToken)
	case q.Get("audience") == "":
		err = invalid("audience must be the id of a site")
	}
	if err != nil {
		e.refuse(w, r, err)
		return
	}
	k, err := e.c.Workflows.Exchange(r.Context(), q.Get("subject_token"), site.ID(q.Get("audience")), e.addr(r))
	if err != nil {
		e.refuse(w, r, err)
		return
	}
	answer(w, http.StatusOK, map[string]any{
		"access_token": k.Secret, "issued_token_type": accessToken, "token_type": "Bearer", "scope": k.Scopes.String(),
		"expires_in": max(0, int64(k.Expires.Sub(db.Now())/time.Second)),
	})
}
