package totp_test

import (
	"testing"

	"slipway/internal/tenant/account/totp"
)

// Test vectors of RFC 4226, Appendix D, and of RFC 6238, Appendix B, cut to six digits.
func TestHOTP(t *testing.T) {
	t.Parallel()
	secret := []byte("12345678901234567890")
	for counter, want := range map[uint64]string{
		0:                "755224",
		1:                "287082",
		2:                "359152",
		3:                "969429",
		4:                "338314",
		5:                "254676",
		6:                "287922",
		7:                "162583",
		8:                "399871",
		9:                "520489",
		1111111109 / 30:  "081804",
		1111111111 / 30:  "050471",
		1234567890 / 30:  "005924",
		2000000000 / 30:  "279037",
		20000000000 / 30: "353130",
	} {
		if got := totp.HOTP(secret, counter); got != want {
			t.Errorf("counter %d: %s, want %s", counter, got, want)
		}
	}
}
