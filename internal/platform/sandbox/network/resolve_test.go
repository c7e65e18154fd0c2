package network

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/dns/dnsmessage"
)

// Unknown names are forgotten after a while, and many of them use little memory.
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
	first, code := n.lookup("yes.test")
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
}

// The result that a name doesn't exist expires.
func TestUnknownNamesEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := newNames("")
		for _, host := range []string{"a.test", "b.test"} {
			n.lookup(host) // fails, because there is no proxy
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

// questions returns a resolver that asks n over UDP and TCP, like a program.
func questions(t *testing.T, n *names) *net.Resolver {
	t.Helper()
	packets, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	stream, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = packets.Close(), stream.Close() })
	go n.serve(packets)
	go n.accept(stream, resolverPort)
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		to := packets.LocalAddr()
		if strings.HasPrefix(network, "tcp") {
			to = stream.Addr()
		}
		return new(net.Dialer).DialContext(ctx, network, to.String())
	}}
}

// Programs get SRV and TXT records, which MongoDB drivers need, and MX records for mailers. Answers that are too long
// for UDP are sent over TCP.
func TestOtherRecords(t *testing.T) {
	t.Parallel()
	host := func(name string) dnsmessage.Name { return dnsmessage.MustNewName(name) }
	long := strings.Repeat("x", 5000)
	records := map[string]dnsmessage.ResourceBody{
		"SRV _mongodb._tcp.db.test": &dnsmessage.SRVResource{Priority: 1, Weight: 2, Port: 27017, Target: host("shard.db.test.")},
		"TXT db.test":               &dnsmessage.TXTResource{TXT: []string{"authSource=admin"}},
		"TXT long.test": &dnsmessage.TXTResource{TXT: slices.Collect(func(yield func(string) bool) {
			for part := range slices.Chunk([]byte(long), 250) {
				if !yield(string(part)) {
					return
				}
			}
		})},
		"MX db.test":               &dnsmessage.MXResource{Pref: 10, MX: host("mail.db.test.")},
		"NS db.test":               &dnsmessage.NSResource{NS: host("ns.db.test.")},
		"PTR 1.1.1.1.in-addr.arpa": &dnsmessage.PTRResource{PTR: host("one.test.")},
	}
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		kind, name := r.FormValue("type"), r.FormValue("name")
		body, ok := records[kind+" "+name]
		switch {
		case kind == "" && name == "db.test", kind == "MX" && name == "long.test":
			w.WriteHeader(204)
		case !ok:
			w.WriteHeader(404)
		default:
			head := dnsmessage.ResourceHeader{Name: host(name + "."), Class: dnsmessage.ClassINET}
			m := dnsmessage.Message{Answers: []dnsmessage.Resource{{Header: head, Body: body}}}
			packed, err := m.Pack()
			if err != nil {
				t.Error(err)
			}
			w.Header().Set("Content-Length", strconv.Itoa(len(packed)))
			_, _ = w.Write(packed)
		}
	})}
	go func() { _ = s.Serve(l) }()
	t.Cleanup(func() { _ = s.Close() })
	r := questions(t, newNames(path))
	if _, srv, err := r.LookupSRV(t.Context(), "mongodb", "tcp", "db.test"); err != nil || len(srv) != 1 ||
		*srv[0] != (net.SRV{Target: "shard.db.test.", Port: 27017, Priority: 1, Weight: 2}) {
		t.Errorf("SRV: %v, %v", srv, err)
	}
	for name, want := range map[string]string{"db.test": "authSource=admin", "long.test": long} {
		if txt, err := r.LookupTXT(t.Context(), name); err != nil || len(txt) != 1 || txt[0] != want {
			t.Errorf("TXT of %s: %.100q, %v", name, txt, err)
		}
	}
	if mx, err := r.LookupMX(t.Context(), "db.test."); err != nil || len(mx) != 1 || mx[0].Host != "mail.db.test." {
		t.Errorf("MX: %v, %v", mx, err)
	}
	if ns, err := r.LookupNS(t.Context(), "db.test."); err != nil || len(ns) != 1 || ns[0].Host != "ns.db.test." {
		t.Errorf("NS: %v, %v", ns, err)
	}
	if names, err := r.LookupAddr(t.Context(), "1.1.1.1"); err != nil || !slices.Equal(names, []string{"one.test."}) {
		t.Errorf("PTR: %v, %v", names, err)
	}
	addrs, err := r.LookupHost(t.Context(), "db.test")
	if err != nil || len(addrs) != 1 {
		t.Fatalf("A: %v, %v", addrs, err)
	}
	if names, err := r.LookupAddr(t.Context(), addrs[0]); err != nil || !slices.Equal(names, []string{"db.test."}) {
		t.Errorf("PTR of %s: %v, %v", addrs[0], names, err)
	}
	for _, name := range []string{"long.test.", "nowhere.test."} {
		var none *net.DNSError
		if mx, err := r.LookupMX(t.Context(), name); !errors.As(err, &none) || !none.IsNotFound {
			t.Errorf("MX of %s: %v, %v", name, mx, err)
		}
	}
}

// A program may resolve far more names than are remembered, like a crawler: new names get addresses, and names in use
// keep theirs.
func TestNamesAreForgottenByUse(t *testing.T) {
	t.Parallel()
	n := newNames("")
	old := addrOf(n.assign("old.test"))
	used := addrOf(n.assign("used.test"))
	for i := range 3 * maxNameBytes / nameCost {
		n.assign(fmt.Sprintf("crawled-%d.test", i))
		if host, ok := n.of(used); !ok || host != "used.test" {
			t.Fatalf("after %d names, %v is %q", i, used, host)
		}
	}
	if host, ok := n.of(old); ok {
		t.Errorf("%v is still %q", old, host)
	}
	if size := n.recent.bytes + n.earlier.bytes; size > maxNameBytes {
		t.Errorf("%d bytes of names", size)
	}
	if i, ok := n.number("used.test"); !ok || addrOf(i) != used {
		t.Errorf("used.test is %v, was %v", addrOf(i), used)
	}
	n.next = addresses - 1
	last, first := addrOf(n.assign("last.test")), addrOf(n.assign("first.test"))
	if !fakeNet.Contains(last) || !fakeNet.Contains(first) || first == used || last == first {
		t.Errorf("at the end of the addresses: %v, then %v", last, first)
	}
}
