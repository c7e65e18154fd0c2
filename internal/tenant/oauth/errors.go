package oauth

import "net/http"

// Error is an error as clients of an authorization server read it (RFC 6749 §5.2, RFC 8628 §3.5).
type Error struct {
	Code        string // such as invalid_grant
	Description string // one sentence in English, without quotes (RFC 6749 §5.2)
	Status      int    // of HTTP
}

func (e *Error) Error() string { return e.Code + ": " + e.Description }

func bad(code, description string) *Error { return &Error{code, description, http.StatusBadRequest} }

// errClient is the one answer to a client that can't be told who it is.
var errClient = &Error{"invalid_client", "The client is unknown, disabled, or its secret is wrong", http.StatusUnauthorized}

// errGrant is the one answer to a code or refresh token that doesn't work, whatever the reason.
var errGrant = bad("invalid_grant", "The code or token is invalid, expired or was used before")
