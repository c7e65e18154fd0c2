package signature

import (
	"bytes"
	"strings"
	"testing"
	"time"
)

func TestSignatures(t *testing.T) {
	t.Parallel()
	// Test vectors. The second equals Svix's own.
	secret, body := "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", []byte(`{"test": 2432232314}`)
	if got, want := Of(secret, body), "sha256=80ec8a89ce3cd22133a1066caecb4d04fea7467657c8514d717ec42c38a5c94c"; got != want {
		t.Errorf("Signature = %s, want %s", got, want)
	}
	at := time.Unix(1614265330, 0)
	if got, want := Standard(
		secret,
		"msg_p5jXN8AQM9LWM0D4loKWxJek",
		at,
		body,
	), "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="; got != want {
		t.Errorf("StandardSignature = %s, want %s", got, want)
	}
	// A secret that isn't in Standard Webhooks' format is itself the key.
	for _, plain := range []string{"geheim", "whsec_", "whsec_not base64!"} {
		if !bytes.Equal(standardKey(plain), []byte(plain)) {
			t.Errorf("key of %q is %q", plain, standardKey(plain))
		}
	}
	a, b := NewSecret(), NewSecret()
	if a == b || !strings.HasPrefix(a, "whsec_") || len(standardKey(a)) != 32 {
		t.Errorf("generated %q and %q", a, b)
	}
}
