package forge

import (
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"net/http"
	"strconv"
	"strings"
	"time"

	"slipway/internal/platform/fault"
)

// SecretPrefix begins a secret that can key Standard Webhooks as well: what follows is
// base64 of the key.
const SecretPrefix = "whsec_"

// tolerance is how far the time of a Standard Webhooks signature may be off.
const tolerance = 5 * time.Minute

// Verify is nil when the call is signed with the secret in the way of the forge whose
// headers it has: over the raw bytes of the body, compared in constant time.
func Verify(h http.Header, body []byte, secret string, now time.Time) error {
	p, _, _ := Recognize(h)
	good := false
	switch p {
	case GitHub:
		good = signed(h.Get("X-Hub-Signature-256"), "sha256=", body, secret)
	case Gitea:
		for _, name := range []string{"X-Gitea-Signature", "X-Forgejo-Signature", "X-Gogs-Signature"} {
			if sig := h.Get(name); sig != "" {
				good = signed(sig, "", body, secret)
				break
			}
		}
	case Bitbucket, BitbucketServer:
		good = signed(h.Get("X-Hub-Signature"), "sha256=", body, secret)
	case GitLab:
		if h.Get("Webhook-Signature") != "" {
			good = standard(h, body, secret, now)
		} else {
			have, want := sha256.Sum256([]byte(h.Get("X-Gitlab-Token"))), sha256.Sum256([]byte(secret))
			good = subtle.ConstantTimeCompare(have[:], want[:]) == 1
		}
	}
	if secret != "" && good {
		return nil
	}
	return fault.New(fault.Unauthorized, "invalid_signature", "The signature is missing or wrong",
		"give the Git provider's webhook the secret of this hook; generate a new one in the site's settings")
}

func signed(sig, prefix string, body []byte, secret string) bool {
	digits, ok := strings.CutPrefix(sig, prefix)
	if !ok {
		return false
	}
	have, err := hex.DecodeString(digits)
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write(body)
	return err == nil && hmac.Equal(have, mac.Sum(nil))
}

// standard checks the headers of Standard Webhooks. Any of several signatures will do: a
// sender whose secret changes signs with both.
func standard(h http.Header, body []byte, secret string, now time.Time) bool {
	key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, SecretPrefix))
	if err != nil {
		return false
	}
	at, err := strconv.ParseInt(h.Get("Webhook-Timestamp"), 10, 64)
	if err != nil || now.Sub(time.Unix(at, 0)).Abs() > tolerance {
		return false
	}
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(h.Get("Webhook-Id") + "." + h.Get("Webhook-Timestamp") + "."))
	mac.Write(body)
	want, good := mac.Sum(nil), false
	for i, one := range strings.Fields(h.Get("Webhook-Signature")) {
		digits, ok := strings.CutPrefix(one, "v1,")
		have, err := base64.StdEncoding.DecodeString(digits)
		if i < 10 && ok && err == nil && hmac.Equal(have, want) {
			good = true
		}
	}
	return good
}
