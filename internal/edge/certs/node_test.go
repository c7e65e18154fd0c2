package certs

import (
	"crypto/tls"
	"fmt"
	"path/filepath"
	"testing"

	"slipway/internal/platform/db"
	"slipway/internal/platform/dbtest"
	"slipway/internal/platform/node"
	"slipway/internal/platform/seal"
	"slipway/internal/platform/wait"
)

// Nodes connect to each other while both are on the installation's list. A removed node is refused within seconds in
// both directions, although its certificate is still valid. A certificate without a node's name, as earlier versions
// have, is accepted only while a node of another version runs.
func TestForgottenNode(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	key, err := seal.Load(filepath.Join(t.TempDir(), "secrets.key"))
	if err != nil {
		t.Fatal(err)
	}
	type side struct{ listens, connects *tls.Config }
	with := func(id string) (s side) {
		t.Helper()
		s.listens, s.connects, err = NodeTLS(t.Context(), d, key, id, node.NewRoster(d, "2"))
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	add := func(id, version string) {
		t.Helper()
		if err := d.Admin(t.Context(), `INSERT INTO nodes (id, run, name, address, version, roles, blobs, site_domain, ahead_ms, state, started_at,
			seen_at, lease_until, storage) VALUES ('`+id+`', '', '', '', '`+version+`', '', '', '', 0, 'up', 1, 1, 9000000000000, '')`); err != nil {
			t.Fatal(err)
		}
	}
	// meet returns nil if both sides accept each other, which a byte from the listening side proves.
	meet := func(from, to side) error {
		t.Helper()
		l, err := tls.Listen("tcp", "127.0.0.1:0", to.listens)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		go func() {
			if c, err := l.Accept(); err == nil {
				_, _ = c.Write([]byte("!")) // sent after the handshake
				c.Close()
			}
		}()
		c, err := tls.Dial("tcp", l.Addr().String(), from.connects)
		if err != nil {
			return err
		}
		defer c.Close()
		_, err = c.Read(make([]byte, 1))
		return err
	}
	add("node_a", "2")
	a, b, earlier := with("node_a"), with("node_b"), with("")
	if err := meet(b, a); err == nil {
		t.Error("a node that never joined is admitted")
	}
	add("node_b", "2")
	admitted := func(from, to side, want bool) {
		t.Helper()
		wait.Until(t, fmt.Sprintf("a node is admitted: %v", want), func() bool { return (meet(from, to) == nil) == want })
	}
	admitted(b, a, true)
	admitted(a, b, true)
	if err := meet(earlier, a); err == nil {
		t.Error("a certificate without a node is admitted among nodes of one version")
	}
	if err := d.Write(t.Context(), func(tx *db.Tx) error { return node.ForgetTx(t.Context(), tx, "node_b") }); err != nil {
		t.Fatal(err)
	}
	admitted(b, a, false)
	admitted(a, b, false)
	add("node_c", "1")
	admitted(earlier, a, true)
}
