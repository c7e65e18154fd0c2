package nodes

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"slipway/e2e/world"
)

// redisServer starts the operator's server, which takes nobody without TLS, and returns its address for --redis.
func redisServer(t *testing.T, certificate tls.Certificate, ca string) string {
	t.Helper()
	dir := t.TempDir()
	ports, err := world.FreePorts(1)
	if err != nil {
		t.Fatal(err)
	}
	key, err := x509.MarshalPKCS8PrivateKey(certificate.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	for name, block := range map[string]*pem.Block{
		"cert.pem": {Type: "CERTIFICATE", Bytes: certificate.Certificate[0]},
		"key.pem":  {Type: "PRIVATE KEY", Bytes: key},
	} {
		if err := os.WriteFile(filepath.Join(dir, name), pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	host, port, err := net.SplitHostPort(ports[0])
	if err != nil {
		t.Fatal(err)
	}
	server := exec.Command("redis-server", "--bind", host, "--port", "0", "--tls-port", port, "--dir", dir, "--save", "", "--requirepass", "secret",
		"--tls-cert-file", filepath.Join(dir, "cert.pem"), "--tls-key-file", filepath.Join(dir, "key.pem"), "--tls-auth-clients", "no")
	server.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := server.Start(); err != nil {
		t.Fatalf("Redis is needed: apt-get install redis-server: %v", err)
	}
	t.Cleanup(func() { server.Process.Kill(); server.Wait() })
	return "rediss://:secret@" + ports[0] + "?ca=" + url.QueryEscape(ca)
}

// redisKeys returns how many keys the server at an address of redisServer holds.
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
