// Package ports owns the listeners of a process: which it opens or takes from systemd, and how many connections they take.
package ports

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"slipway/internal/edge/connlimit"
)

// Config holds the addresses to listen on, host:port. An empty one is not listened on.
type Config struct {
	Control string
	HTTP    string
	HTTPS   string
	QUIC    bool // UDP on the port of HTTPS too
	DNS     string
	Node    string // of other nodes

	// Passed are sockets that systemd opened before the process began. Each takes the place of
	// opening the address with its port; one that no address has is an error.
	Passed []*os.File
}

// Ports are the listeners. A closed one is nil.
type Ports struct {
	Control, HTTP, HTTPS net.Listener
	Node                 net.Listener // for other nodes
	DNS                  net.Listener // with Packets on the same port
	Packets              net.PacketConn
	QUIC                 net.PacketConn     // UDP on the port of HTTPS; nil without HTTP/3
	Limits               *connlimit.Limiter // of visitors' connections, for QUIC; Limit's
}

// Open opens the listeners, and after an error none. The error names the flag.
func Open(c Config) (p *Ports, err error) {
	p = &Ports{}
	// A child that was about to start when the process before us was killed holds its
	// ports for a moment longer.
	patiently := func(flag string, open func() error) {
		for stop := time.Now().Add(time.Second); ; time.Sleep(20 * time.Millisecond) {
			if err = open(); !errors.Is(err, syscall.EADDRINUSE) || time.Now().After(stop) {
				break
			}
		}
		if err != nil {
			err = fmt.Errorf("%s: %w", flag, err)
		}
	}
	passed, err := takeOver(c.Passed)
	open := func(flag, addr string) (got net.Listener) {
		if err == nil && addr != "" {
			got = passed.stream(addr)
			if got != nil {
				return got
			}
			patiently(flag, func() (err error) {
				got, err = net.Listen("tcp", addr)
				return err
			})
		}
		return got
	}
	packets := func(flag string, beside net.Listener) (got net.PacketConn) {
		if err == nil && beside != nil {
			got = passed.packets(beside.Addr().String())
			if got != nil {
				return got
			}
			patiently(flag, func() (err error) {
				got, err = net.ListenPacket("udp", beside.Addr().String())
				return err
			})
		}
		return got
	}
	p.Control = open("--listen", c.Control)
	p.HTTP = open("--edge-http", c.HTTP)
	p.HTTPS = open("--edge-https", c.HTTPS)
	if c.QUIC {
		p.QUIC = packets("--http3", p.HTTPS)
	}
	p.DNS = open("--acme-dns", c.DNS)
	p.Node = open("--node-listen", c.Node)
	p.Packets = packets("--acme-dns", p.DNS)
	if err == nil {
		err = passed.rest()
	}
	if err != nil {
		passed.close()
		p.Close()
	}
	return p, err
}

// Close closes all listeners.
func (p *Ports) Close() {
	for _, x := range []net.Listener{p.Control, p.HTTP, p.HTTPS, p.DNS, p.Node} {
		if x != nil {
			x.Close()
		}
	}
	for _, x := range []net.PacketConn{p.Packets, p.QUIC} {
		if x != nil {
			x.Close()
		}
	}
}

// Local returns where this machine reaches the listener of HTTPS, host:port; empty: nowhere.
func (p *Ports) Local() string {
	if p.HTTPS == nil {
		return ""
	}
	a, ok := p.HTTPS.Addr().(*net.TCPAddr)
	if !ok {
		return ""
	}
	at := a.AddrPort()
	if at.Addr().IsUnspecified() {
		at = netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), at.Port())
	}
	return netip.AddrPortFrom(at.Addr().Unmap(), at.Port()).String()
}

// Limits say how many connections the listeners take. Zero means what the open files allow.
type Limits struct {
	Total, PerAddress int
	Exempt            []netip.Prefix // whose connections count to Total alone
	Forwarding        bool           // connections from Exempt to HTTP and HTTPS begin with the PROXY protocol
	Metrics           prometheus.Registerer
}

// Limit puts the listeners under their limits.
func (p *Ports) Limit(l Limits) error {
	n, err := connlimit.Descriptors()
	if err != nil {
		return err
	}
	plan := connlimit.Plan(n, l.Total, l.PerAddress)
	refused := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "slipway_connections_refused_total",
		Help: "Connections closed because there were too many, by listener and limit.",
	}, []string{
		"listener",
		"limit",
	})
	l.Metrics.MustRegister(refused)
	limiter := func(name string, total, perAddress, spare int) *connlimit.Limiter {
		for _, reason := range []string{"total", "address"} { // a rate needs the zero before the first one
			refused.WithLabelValues(name, reason)
		}
		limiter := connlimit.New(connlimit.Config{
			Total: total, PerAddress: perAddress, Spare: spare, Exempt: l.Exempt,
			OnRefused: func(reason string) { refused.WithLabelValues(name, reason).Inc() },
		})
		l.Metrics.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "slipway_connections", Help: "Open connections, by listener.", ConstLabels: prometheus.Labels{"listener": name},
		},
			func() float64 { return float64(limiter.Len()) }))
		return limiter
	}
	if p.Control != nil {
		p.Control = limiter("control", plan.Control, plan.ControlAddress, 0).Listen(p.Control)
	}
	p.Limits = limiter("edge", plan.Edge, plan.EdgeAddress, plan.EdgeSpare)
	for _, ln := range []*net.Listener{&p.HTTP, &p.HTTPS} {
		if *ln == nil {
			continue
		}
		if l.Forwarding {
			*ln = behind(*ln, l.Exempt, headerTime)
		}
		*ln = p.Limits.Listen(*ln)
	}
	return nil
}
