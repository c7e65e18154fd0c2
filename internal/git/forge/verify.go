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

// SecretPrefix begins a secret that is also a key of Standard Webhooks: the rest is the key in base64.
const SecretPrefix = "whsec_"

// tolerance is the allowed clock difference of a Standard Webhooks timestamp.
const tolerance = 5 * time.Minute

// Verify returns nil if the call is signed with the secret, in the way of the provider whose headers it has. The
// signature covers the raw body and is compared in constant time.
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

// standard checks a Standard Webhooks signature. One valid signature of several is enough: while a sender's secret
// changes, it signs with both.
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
