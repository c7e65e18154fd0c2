package oauth

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"

	"slipway/internal/tenant/account"
)

// The prefixes of secrets: a scanner tells by them and by the checksum what has leaked.
const (
	accessPrefix  = "slo_"
	refreshPrefix = "slr_"
	appPrefix     = "sls_"
	codePrefix    = "slc_"
	devicePrefix  = "sld_"
)

// LooksLikeToken reports whether s has the shape and the checksum of an access token.
func LooksLikeToken(s string) bool { return account.HasSecretForm(s, accessPrefix) }

func digest(secret string) string {
	sum := sha256.Sum256([]byte(secret))
	return hex.EncodeToString(sum[:])
}

// userCodeLetters are the consonants that RFC 8628 §6.1 proposes: no words, nothing that looks alike.
const userCodeLetters = "BCDFGHJKLMNPQRSTVWXZ"

// newUserCode returns eight letters, about 34 bits, which a person types once within ten minutes.
func newUserCode() string {
	out := make([]byte, 0, 8)
	var b [1]byte
	for len(out) < 8 {
		rand.Read(b[:])
		if b[0] < 240 { // 12 × 20: each letter alike
			out = append(out, userCodeLetters[b[0]%20])
		}
	}
	return string(out)
}
