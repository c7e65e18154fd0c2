package database_test

import (
	"bytes"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"slipway/internal/program/database"
)

// Slipway, and programs that know nothing of TLS, must reach a server that accepts only TLS. A server that shows
// another certificate must not be used.
func TestExternalTLS(t *testing.T) {
	t.Parallel()
	cert, key := database.WriteCertificate(t, t.TempDir())
	server := newExternal(t, "--ssl-cert="+cert, "--ssl-key="+key, "--require-secure-transport=ON")
	address := server.address() + "?tls=true&ca=" + url.QueryEscape(cert)
	w := newWorld(t, func(c *database.Config) { c.External = address })
	site := w.site(anna, "one")
	x := w.database(anna, site)
	pool := w.connect(site)
	w.exec(pool, "CREATE TABLE t (x LONGTEXT)", "INSERT INTO t VALUES (repeat('x', 3000000))")
	var kept, cipher, name string
	ok(t, pool.QueryRowContext(t.Context(), "SELECT x FROM t").Scan(&kept))
	if len(kept) != 3_000_000 {
		t.Errorf("read back: %d bytes", len(kept))
	}
	ok(t, pool.QueryRowContext(t.Context(), "SHOW SESSION STATUS LIKE 'Ssl_cipher'").Scan(&name, &cipher))
	if cipher == "" {
		t.Error("the connection is not encrypted")
	}
	dump := w.dump(x.ID)
	if !bytes.Contains(dump, []byte("xxxx")) {
		t.Error("a dump has no rows")
	}
	loaded, err := w.Load(t.Context(), anna, bytes.NewReader(dump), database.LoadOptions{Check: true})
	ok(t, err)
	loaded.Drop(t.Context())

	// MariaDB's own client connects, also with compression, which begins after the handshake, and once with a wrong
	// password.
	env, _, err := w.Env(t.Context(), site)
	ok(t, err)
	client := func(password string) (string, error) {
		out, err := exec.CommandContext(t.Context(), "mariadb", "--no-defaults", "--skip-ssl", "--compress", "--protocol=socket",
			"--socket="+w.socket(site), "--user="+env["DB_USERNAME"], "--password="+password, "--batch", "--skip-column-names",
			"--execute=SELECT length(x) FROM t", env["DB_DATABASE"]).CombinedOutput()
		return string(out), err
	}
	if out, err := client(env["DB_PASSWORD"]); err != nil || strings.TrimSpace(out) != "3000000" {
		t.Errorf("MariaDB's client: %v: %s", err, out)
	}
	if out, err := client("another"); err == nil || !strings.Contains(out, "1045") {
		t.Errorf("with another password: %v: %s", err, out)
	}
}

// The error about a server's address must name what is wrong with it.
func TestParseServer(t *testing.T) {
	t.Parallel()
	cert, _ := database.WriteCertificate(t, t.TempDir())
	empty := filepath.Join(t.TempDir(), "empty")
	ok(t, os.WriteFile(empty, nil, 0o600))
	for address, want := range map[string]string{
		"mysql://a:b@db.example":                      "",
		"mysql://a:b@db.example:33?tls=true":          "",
		"mysql://a:b@db.example?tls=true&ca=" + cert:  "",
		"mysql://a:b@db.example?tls=false":            "tls must be true",
		"mysql://a:b@db.example?ca=" + cert:           "tls must be true",
		"mysql://a:b@db.example?tls=skip-verify":      "tls must be true",
		"mysql://a:b@db.example?ssl=true":             "no parameter ssl",
		"mysql://a:b@db.example?tls=true&tls=true":    "no parameter tls",
		"mysql://a:b@db.example?tls=true&ca=/nowhere": "read ca",
		"mysql://a:b@db.example?tls=true&ca=" + empty: "no certificate in PEM",
		"mysql://a:b@db.example/name":                 "must be mysql://",
		"postgres://a:b@db.example":                   "must be mysql://",
		"mysql://db.example":                          "must be mysql://",
	} {
		c, err := database.ParseServer(address)
		switch {
		case want == "" && err != nil:
			t.Errorf("%s: %v", address, err)
		case want == "" && (c.TLS != nil) != strings.Contains(address, "tls=true"):
			t.Errorf("%s: TLS %v", address, c.TLS)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("%s: %v, not %s", address, err, want)
		}
	}
}
