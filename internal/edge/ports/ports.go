// Package ports owns the listeners of a process: it opens them or takes them from systemd, and limits their
// connections.
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

// Config holds the addresses to listen on, as host:port. An empty address has no listener.
type Config struct {
	Control string
	HTTP    string
	HTTPS   string
	QUIC    bool // also UDP on the port of HTTPS
	DNS     string
	Node    string // for other nodes

	// Passed holds sockets that systemd opened. Each replaces the listener whose address has its port; Open fails if no
	// address has it.
	Passed []*os.File
}

// Ports holds the listeners. A closed one is nil.
type Ports struct {
	Control, HTTP, HTTPS net.Listener
	Node                 net.Listener // for other nodes
	DNS                  net.Listener // TCP; Packets has the same port
	Packets              net.PacketConn
	QUIC                 net.PacketConn     // UDP on the port of HTTPS; nil without HTTP/3
	Limits               *connlimit.Limiter // connection limits of visitors, for QUIC; set by Limit
}

// Open opens all listeners or none. Its error names the flag.
func Open(c Config) (p *Ports, err error) {
	p = &Ports{}
	// If the previous process was killed, a child it was starting may hold its ports a moment longer.
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

// Local returns the host:port at which this machine reaches the HTTPS listener, or "".
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

// Limits holds the connection limits of the listeners. Zero means as many as the open files allow.
type Limits struct {
	Total, PerAddress int
	Exempt            []netip.Prefix // addresses with no limit except Total
	Forwarding        bool           // connections from Exempt to HTTP and HTTPS begin with a PROXY protocol header
	Metrics           prometheus.Registerer
}

// Limit applies limits to the listeners.
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
		for _, reason := range []string{"total", "address"} { // create the series, so that rates start at zero
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
