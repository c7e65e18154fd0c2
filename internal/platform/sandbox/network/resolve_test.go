package network

import (
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/dns/dnsmessage"
)

// Names that don't exist are forgotten, and however many are asked for take little memory;
// those that exist keep their addresses, up to a bound.
func TestNamesAreBounded(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.FormValue("name"), "no") {
			w.WriteHeader(404)
			return
		}
		w.WriteHeader(204)
	})}
	go func() { _ = s.Serve(l) }()
	t.Cleanup(func() { _ = s.Close() })
	n := newNames(path)
	first, code := n.lookup("Yes.test.")
	if code != dnsmessage.RCodeSuccess {
		t.Fatal(code)
	}
	for i := range 3 * maxUnknown {
		if _, code := n.lookup(fmt.Sprintf("no%d.test", i)); code != dnsmessage.RCodeNameError {
			t.Fatalf("%d: %v", i, code)
		}
	}
	if len(n.unknown) > maxUnknown+1 || len(n.oldest) != len(n.unknown) || len(n.asking) != 0 {
		t.Errorf("%d unknown names are remembered, %d in order, %d asked for", len(n.unknown), len(n.oldest), len(n.asking))
	}
	if again, _ := n.lookup("yes.test"); again != first {
		t.Errorf("a name's address is %v, and then %v", first, again)
	}
	if host, ok := n.of(first); !ok || host != "yes.test" {
		t.Errorf("%v stands for %q", first, host)
	}
	n.bytes = maxNameBytes - nameCost
	if _, code := n.lookup("one.more.test"); code != dnsmessage.RCodeRefused {
		t.Errorf("beyond the bound: %v", code)
	}
	if again, code := n.lookup("yes.test"); again != first || code != dnsmessage.RCodeSuccess {
		t.Errorf("a known name beyond the bound: %v %v", again, code)
	}
}

// What didn't exist may exist a moment later.
func TestUnknownNamesEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := newNames("")
		for _, host := range []string{"a.test", "b.test"} {
			n.lookup(host) // there is no proxy
			time.Sleep(forgetAfter / 2)
		}
		n.forget(time.Now().Add(1))
		if len(n.unknown) != 1 || len(n.oldest) != 1 || n.oldest[0] != "b.test" {
			t.Errorf("%v %v", n.unknown, n.oldest)
		}
		n.forget(time.Now().Add(forgetAfter))
		if len(n.unknown) != 0 || n.oldest != nil {
			t.Errorf("%v %v", n.unknown, n.oldest)
		}
	})
}
