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
	maxKeys    = 64   // in the key set of an issuer; those of the large ones have about 15
	maxRSABits = 8192 // of a key, as in crypto/tls
)

// light refuses key sets that would take long to check a signature with: the time grows with the square of an RSA key's
// size, and with the number of keys where a token names none. It looks at what each answer holds rather than at its
// address, because a redirect or a signed userinfo answer must not lead around it.
type light struct{ next http.RoundTripper }

// RoundTrip sends a request.
func (l light) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := l.next.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body) // bounded reads no more than maxAnswer
	if err == nil {
		err = checkKeys(body)
	}
	if err != nil {
		return nil, err
	}
	answer.Body = io.NopCloser(bytes.NewReader(body))
	return answer, nil
}

// checkKeys reads an answer the way that go-oidc reads a key set.
func checkKeys(body []byte) error {
	var set struct {
		Keys []json.RawMessage `json:"keys"`
	}
	if json.Unmarshal(body, &set) != nil {
		return nil // no key set
	}
	if len(set.Keys) > maxKeys {
		return fmt.Errorf("the issuer has %d keys, at most %d are allowed", len(set.Keys), maxKeys)
	}
	for _, raw := range set.Keys {
		var key jose.JSONWebKey
		if json.Unmarshal(raw, &key) != nil {
			continue // go-oidc leaves it out too
		}
		public, ok := key.Public().Key.(*rsa.PublicKey)
		if ok && public.N.BitLen() > maxRSABits {
			return fmt.Errorf("an RSA key of the issuer has %d bits, at most %d are allowed", public.N.BitLen(), maxRSABits)
		}
	}
	return nil
}
