package nodes

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"slipway/e2e/world"
)

// operators starts a server of the operator, stops it at the end of the test, and returns its address.
func operators(t *testing.T, start func(dir string, certificate *world.Receiver) (string, func(), error), certificate *world.Receiver) string {
	t.Helper()
	address, stop, err := start(t.TempDir(), certificate)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	return address
}

// redisKeys returns the number of keys in a server started by world.Redis.
func redisKeys(t *testing.T, address string) string {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	ca, err := os.ReadFile(u.Query().Get("ca"))
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca)
	c, err := tls.Dial("tcp", u.Host, &tls.Config{RootCAs: roots})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	if _, err := c.Write([]byte("AUTH secret\r\nDBSIZE\r\n")); err != nil {
		t.Fatal(err)
	}
	answers := bufio.NewReader(c)
	for range 2 {
		line, err := answers.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		if n, ok := strings.CutPrefix(line, ":"); ok {
			return strings.TrimSpace(n)
		}
	}
	t.Fatal("the server doesn't say how many keys it has")
	return ""
}
