package sso

import (
	"bytes"
	"crypto/rsa"
	"encoding/json"
	"fmt"
	"io"
	"net/http"

	"github.com/go-jose/go-jose/v4"
)

const (
	maxKeys    = 64   // in an issuer's key set; large issuers have about 15
	maxRSABits = 8192 // per key, as in crypto/tls
)

// light refuses key sets with which signature checks would be slow: the time grows with the square of an RSA key's
// size, and with the number of keys if a token names none. It inspects every response rather than certain URLs, so that
// redirects and signed userinfo responses can't bypass it.
type light struct{ next http.RoundTripper }

// RoundTrip implements [http.RoundTripper].
func (l light) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := l.next.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body) // bounded limits it to maxAnswer
	if err == nil {
		err = checkKeys(body)
	}
	if err != nil {
		return nil, err
	}
	answer.Body = io.NopCloser(bytes.NewReader(body))
	return answer, nil
}

// checkKeys parses a response as go-oidc parses a key set.
func checkKeys(body []byte) error {
	var set struct {
		Keys []json.RawMessage `json:"keys"`
	}
	if json.Unmarshal(body, &set) != nil {
		return nil // not a key set
	}
	if len(set.Keys) > maxKeys {
		return fmt.Errorf("the issuer has %d keys, at most %d are allowed", len(set.Keys), maxKeys)
	}
	for _, raw := range set.Keys {
		var key jose.JSONWebKey
		if json.Unmarshal(raw, &key) != nil {
			continue // go-oidc ignores it too
		}
		public, ok := key.Public().Key.(*rsa.PublicKey)
		if ok && public.N.BitLen() > maxRSABits {
			return fmt.Errorf("an RSA key of the issuer has %d bits, at most %d are allowed", public.N.BitLen(), maxRSABits)
		}
	}
	return nil
}
