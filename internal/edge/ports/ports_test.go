package ports

import (
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// If a listener can't be opened, the error names its flag and the others are closed. Listeners without an address
// aren't opened.
func TestOpen(t *testing.T) {
	t.Parallel()
	p, err := Open(Config{Control: "127.0.0.1:0", HTTPS: "127.0.0.1:0", QUIC: true})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if p.HTTP != nil || p.DNS != nil || p.Packets != nil || p.QUIC.LocalAddr().String() != p.HTTPS.Addr().String() ||
		p.Local() != p.HTTPS.Addr().String() {
		t.Errorf("%+v, here at %s", p, p.Local())
	}
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	begun := time.Now()
	if _, err := Open(Config{
		HTTP:  "127.0.0.1:0",
		HTTPS: taken.Addr().String(),
	}); err == nil || !strings.HasPrefix(err.Error(), "--edge-https: ") || time.Since(begun) < time.Second {
		t.Errorf("on a port that is taken: %v after %s", err, time.Since(begun))
	}
	all, err := Open(Config{HTTPS: ":0"})
	if err != nil {
		t.Fatal(err)
	}
	defer all.Close()
	if !strings.HasPrefix(all.Local(), "127.0.0.1:") {
		t.Errorf("on all addresses it is here at %s", all.Local())
	}
	if (&Ports{}).Local() != "" {
		t.Error("an unopened listener has an address")
	}
}

// Connections above the limit are closed and counted.
func TestLimit(t *testing.T) {
	t.Parallel()
	p, err := Open(Config{HTTP: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	metrics := prometheus.NewRegistry()
	if err := p.Limit(Limits{Total: 100, PerAddress: 1, Metrics: metrics}); err != nil {
		t.Fatal(err)
	}
	go func() {
		for {
			if _, err := p.HTTP.Accept(); err != nil {
				return
			}
		}
	}()
	first, err := net.Dial("tcp", p.HTTP.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close()
	second, err := net.Dial("tcp", p.HTTP.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer second.Close()
	_ = second.SetReadDeadline(time.Now().Add(time.Minute))
	if _, err := second.Read(make([]byte, 1)); err == nil || strings.Contains(err.Error(), "timeout") {
		t.Errorf("the second connection of an address: %v", err)
	}
	families, err := metrics.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != "slipway_connections_refused_total" {
			continue
		}
		for _, m := range f.GetMetric() {
			if m.GetCounter().GetValue() == 1 {
				return
			}
		}
	}
	t.Errorf("no refusal is counted: %v", families)
}

// A socket passed by systemd is used instead of opening its flag's address. A socket that matches no flag is an error.
func TestPassed(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	packets, err := net.ListenPacket("udp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer packets.Close()
	stream := func() *os.File {
		f, err := l.(*net.TCPListener).File()
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	udp, err := packets.(*net.UDPConn).File()
	if err != nil {
		t.Fatal(err)
	}
	at := l.Addr().String()
	p, err := Open(Config{HTTPS: at, QUIC: true, Passed: []*os.File{stream(), udp}})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if p.HTTPS.Addr().String() != at || p.QUIC.LocalAddr().String() != at {
		t.Errorf("listens on %s and %s, want %s", p.HTTPS.Addr(), p.QUIC.LocalAddr(), at)
	}
	if c, err := net.Dial("tcp", at); err != nil {
		t.Error(err)
	} else if got, err := p.HTTPS.Accept(); err != nil {
		t.Error(err)
	} else {
		c.Close()
		got.Close()
	}
	pipe, other, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	for _, c := range []struct {
		config Config
		file   *os.File
		want   string
	}{
		{Config{HTTPS: "127.0.0.1:0"}, stream(), "systemd passes a socket on " + at + ", but no setting says that Slipway listens there"},
		{Config{}, stream(), "systemd passes a socket on " + at},
		{Config{}, pipe, "a socket that systemd passes is of no use here: "},
	} {
		c.config.Passed = []*os.File{c.file}
		if _, err := Open(c.config); err == nil || !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("%v, want %s", err, c.want)
		}
	}
}
