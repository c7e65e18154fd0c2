package database

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"io"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// WriteCertificate writes a self-signed certificate for 127.0.0.1 and its key.
func WriteCertificate(t *testing.T, dir string) (cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "database"}, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	cert, key = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	err = errors.Join(
		os.WriteFile(cert, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o644),
		os.WriteFile(key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret}), 0o600),
	)
	if err != nil {
		t.Fatal(err)
	}
	return cert, key
}

// If a server cannot prove its identity, has no TLS or speaks another protocol, it must receive nothing that a program
// sends, and the program's connection must end.
func TestSecureRefuses(t *testing.T) {
	t.Parallel()
	greeting := func(able byte) []byte {
		body := append([]byte("\x0a11.4.2-MariaDB\x00"), make([]byte, 4+8+1)...)
		body = append(body, 0xff, able, 8, 2, 0, 0xff, 0xff, 21)
		body = append(body, make([]byte, 10+13)...)
		return append([]byte{byte(len(body)), 0, 0, 0}, body...)
	}
	hello := append([]byte{36, 0, 0, 1, 0, 2, 0, 0}, make([]byte, 32)...)
	for name, test := range map[string]struct {
		says  []byte // what the server sends
		sends []byte // what the program sends
		want  string
	}{
		"without TLS":                        {greeting(0xf7), hello, "has no TLS"},
		"too many connections":               {append([]byte{9, 0, 0, 0, 0xff, 0x10, 4}, "no more"[:6]...), hello, "lets nobody in"},
		"another protocol":                   {[]byte("HTTP/1.1 400 Bad Request\r\n\r\n"), hello, errHandshake.Error()},
		"an old protocol":                    {[]byte{3, 0, 0, 0, 9, 'x', 0}, hello, "has no TLS"},
		"cut":                                {greeting(0xff)[:20], hello, "EOF"},
		"no version's end":                   {append([]byte{9, 0, 0, 0, 10}, "12345678"...), hello, "has no TLS"},
		"nothing in the packet":              {[]byte{0, 0, 0, 0}, hello, errHandshake.Error()},
		"too large":                          {[]byte{0, 0, 2, 0}, hello, errHandshake.Error()},
		"a program that asks for TLS itself": {greeting(0xff), append([]byte{36, 0, 0, 1, 0, 10, 0, 0}, make([]byte, 32)...), errHandshake.Error()},
		"a program with a short packet":      {greeting(0xff), []byte{2, 0, 0, 1, 0, 2}, errHandshake.Error()},
		"another's certificate":              {greeting(0xff), hello, "certificate"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			certificate, err := tls.LoadX509KeyPair(WriteCertificate(t, t.TempDir()))
			if err != nil {
				t.Fatal(err)
			}
			program, client := net.Pipe()
			far, server := net.Pipe()
			go func() { // the program reads the server's packet and sends its own
				go io.Copy(io.Discard, program)
				program.Write(test.sends)
			}()
			var got bytes.Buffer
			heard := make(chan struct{})
			go func() {
				defer close(heard)
				far.Write(test.says)
				if name == "cut" {
					far.Close()
				}
				if name != "another's certificate" {
					io.Copy(&got, far)
					return
				}
				io.ReadFull(far, make([]byte, 4+sslRequest))
				tls.Server(far, &tls.Config{Certificates: []tls.Certificate{certificate}}).Handshake()
			}()
			over, err := secure(t.Context(), client, server, &tls.Config{ServerName: "db.example", MinVersion: tls.VersionTLS12})
			if over != nil || err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("connection %v, error %v, not %q", over, err, test.want)
			}
			client.Close()
			server.Close()
			far.Close()
			<-heard
			if got.Len() > 0 {
				t.Errorf("the server was sent %d bytes", got.Len())
			}
		})
	}
}
