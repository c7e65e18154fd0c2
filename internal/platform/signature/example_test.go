package signature_test

import (
	"crypto/hmac"
	"fmt"

	"slipway/internal/platform/signature"
)

// A receiver computes the signature of the body that it received, and compares the two in constant time.
func ExampleOf() {
	secret, body := "whsec_c2xpcHdheQ==", []byte(`{"type":"deployment.succeeded"}`)
	header := signature.Of(secret, body) // X-Service-Signature
	fmt.Println(hmac.Equal([]byte(header), []byte(signature.Of(secret, body))))
	fmt.Println(hmac.Equal([]byte(header), []byte(signature.Of(secret, append(body, ' ')))))
	// Output:
	// true
	// false
}
