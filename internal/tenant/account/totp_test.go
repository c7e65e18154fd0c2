package account_test

import (
	"encoding/base32"
	"testing"
	"time"

	"slipway/internal/tenant/account/totp"
)

// codeAt returns the code that an authenticator app shows at a time.
func codeAt(t *testing.T, secret string, at time.Time) string {
	t.Helper()
	raw, err := base32.StdEncoding.WithPadding(base32.NoPadding).DecodeString(secret)
	if err != nil {
		t.Fatal(err)
	}
	return totp.HOTP(raw, uint64(at.Unix()/30))
}
