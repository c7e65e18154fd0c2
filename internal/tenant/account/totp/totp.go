// Package totp owns the codes of authenticator apps: RFC 6238 over RFC 4226, with the parameters that every app knows.
package totp

import (
	"crypto/hmac"
	"crypto/sha1"
	"crypto/subtle"
	"encoding/base32"
	"encoding/binary"
	"fmt"
	"net/url"
	"strings"
	"time"
)

// Bytes is how long a secret is: as SHA-1's output (RFC 4226 §4).
const Bytes = 20

// The parameters every authenticator app knows (RFC 6238 §4 and §5.2, RFC 4226 §5.3).
const (
	step   = 30 * time.Second
	digits = 6
	skew   = 1 // steps a clock may be off, either way
)

// Text returns a secret in base32, as people type it.
func Text(secret []byte) string {
	return base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(secret)
}

// URI returns a secret of a user as a QR code carries it to an app.
func URI(secret []byte, issuer, user string) string {
	q := url.Values{"secret": {Text(secret)}, "issuer": {issuer}}
	return "otpauth://totp/" + url.PathEscape(issuer+":"+user) + "?" + q.Encode()
}

// Looks reports whether a text has the form of a code. Spaces don't count.
func Looks(code string) bool {
	code = strings.ReplaceAll(code, " ", "")
	return len(code) == digits && strings.Trim(code, "0123456789") == ""
}

// Steps returns the steps, of those around now, whose code this is.
func Steps(secret []byte, code string) (steps []int64) {
	code = strings.ReplaceAll(code, " ", "")
	now := time.Now().Unix() / int64(step/time.Second)
	for at := now - skew; at <= now+skew; at++ {
		if subtle.ConstantTimeCompare([]byte(HOTP(secret, uint64(at))), []byte(code)) == 1 {
			steps = append(steps, at)
		}
	}
	return steps
}

// HOTP returns RFC 4226's one-time password.
func HOTP(secret []byte, counter uint64) string {
	mac := hmac.New(sha1.New, secret)
	var b [8]byte
	binary.BigEndian.PutUint64(b[:], counter)
	mac.Write(b[:])
	sum := mac.Sum(nil)
	at := sum[len(sum)-1] & 0xf
	n := binary.BigEndian.Uint32(sum[at:]) & 0x7fffffff
	return fmt.Sprintf("%0*d", digits, n%1_000_000)
}
