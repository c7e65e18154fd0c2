// Package signature owns how webhook deliveries are signed: in the service's own format and as Standard Webhooks.
package signature

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"strconv"
	"strings"
	"time"
)

// Of returns the value of X-Service-Signature: an HMAC of the body, keyed with the UTF-8 bytes of the secret as its
// owner knows it, including any whsec_ prefix.
func Of(secret string, body []byte) string {
	m := hmac.New(sha256.New, []byte(secret))
	m.Write(body)
	return "sha256=" + hex.EncodeToString(m.Sum(nil))
}

// Standard returns a value of webhook-signature (Standard Webhooks 1.0): an HMAC of id, time and body, keyed with the
// decoded bytes of a whsec_ secret, or else with its UTF-8 bytes.
func Standard(secret, id string, at time.Time, body []byte) string {
	m := hmac.New(sha256.New, standardKey(secret))
	m.Write([]byte(id + "." + strconv.FormatInt(at.Unix(), 10) + "."))
	m.Write(body)
	return "v1," + base64.StdEncoding.EncodeToString(m.Sum(nil))
}

func standardKey(secret string) []byte {
	if code, ok := strings.CutPrefix(secret, "whsec_"); ok {
		if key, err := base64.RawStdEncoding.DecodeString(strings.TrimRight(code, "=")); err == nil && len(key) > 0 {
			return key
		}
	}
	return []byte(secret)
}

// NewSecret returns 256 random bits in the format of Standard Webhooks.
func NewSecret() string {
	var b [32]byte
	rand.Read(b[:])
	return "whsec_" + base64.StdEncoding.EncodeToString(b[:])
}
