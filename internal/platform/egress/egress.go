// Package egress owns outgoing connections to hosts that users name; no other package may connect to them.
//
// It checks the address when connecting, after DNS and for each address of a name, so rebinding, redirects and unusual
// notations can't bypass the check. Only public addresses are allowed ([Public]), and not those of this machine. Child
// processes such as git and builds are subject to the same check through [Proxy]. The package never reads proxy
// settings from the environment, never follows redirects, and never tells users which address a name resolved to.
package egress

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"
)

// ErrBlocked is wrapped by every error about an address that may not be reached. Its text is safe for users; it
// contains no address.
var ErrBlocked = errors.New("blocked_address")

// Config says what may be reached besides the public internet. All fields are optional.
type Config struct {
	Allow []netip.Prefix // private networks that may be reached, from --outbound-allow
	// Own lists addresses of this machine that none of its interfaces has (NAT). They are refused like the interfaces'
	// own.
	Own      []netip.Addr
	OwnPorts []uint16       // ports of this machine's public addresses that may be reached, such as the edge's 443
	CAFile   string         // PEM file of roots to trust besides the system's
	Roots    *x509.CertPool // replaces the system's roots; CAFile adds to it; nil: the system's
	Resolver *net.Resolver  // nil: the system's
	Connect  time.Duration  // time limit for DNS and connecting together; 0 means 5 s
	Log      *slog.Logger
}

// Egress makes connections. It is safe for concurrent use.
type Egress struct {
	c     Config
	roots *x509.CertPool
	own   ownAddrs
}

// New reads the roots. An unreadable or empty CAFile is an error.
func New(c Config) (*Egress, error) {
	c.Connect = cmp.Or(c.Connect, 5*time.Second)
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	c.Allow, c.Own = slices.Clone(c.Allow), slices.Clone(c.Own)
	e := &Egress{c: c, roots: c.Roots}
	if c.CAFile != "" {
		pem, err := os.ReadFile(c.CAFile)
		if err != nil {
			return nil, fmt.Errorf("read outbound CA file: %w", err)
		}
		if e.roots == nil {
			if e.roots, err = x509.SystemCertPool(); err != nil {
				return nil, fmt.Errorf("read system roots: %w", err)
			}
		} else {
			e.roots = e.roots.Clone()
		}
		if !e.roots.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("read outbound CA file: no certificate in %s", c.CAFile)
		}
	}
	return e, nil
}

// CAFile returns the file of additional roots, for child processes with their own TLS, or "".
func (e *Egress) CAFile() string { return e.c.CAFile }

// DialContext connects to host:port over TCP. An error that wraps ErrBlocked means that the name has no allowed
// address; it contains the given host, not its addresses.
func (e *Egress) DialContext(ctx context.Context, network, addr string) (net.Conn, error) {
	switch network {
	case "tcp", "tcp4", "tcp6":
	default:
		return nil, fmt.Errorf("dial %s: network %q: %w", addr, network, ErrBlocked)
	}
	d := net.Dialer{Timeout: e.c.Connect, Resolver: e.c.Resolver, ControlContext: e.control}
	conn, err := d.DialContext(ctx, network, addr)
	if errors.Is(err, ErrBlocked) {
		e.c.Log.WarnContext(ctx, "outbound connection refused", "addr", addr)
		return nil, &blockedError{addr}
	}
	return conn, err
}

// control checks the concrete address, between creating the socket and connecting.
func (e *Egress) control(_ context.Context, network, addr string, _ syscall.RawConn) error {
	if network != "tcp4" && network != "tcp6" {
		return ErrBlocked
	}
	ap, err := netip.ParseAddrPort(addr)
	if err != nil {
		return ErrBlocked
	}
	if !e.permits(ap) {
		return ErrBlocked
	}
	return nil
}

func (e *Egress) permits(ap netip.AddrPort) bool {
	a := ap.Addr()
	if a.Zone() != "" {
		return false
	}
	a = a.Unmap()
	if within(e.c.Allow, a) {
		return true
	}
	if !Public(a) {
		return false
	}
	return slices.Contains(e.c.OwnPorts, ap.Port()) || !slices.Contains(e.c.Own, a) && !e.own.has(a)
}

// Client returns an [http.Client] with its own connections. timeout covers the whole exchange, including reading the
// body. It doesn't follow redirects, fails on response headers over 64 KiB and doesn't decompress. The caller must
// limit the body.
func (e *Egress) Client(timeout time.Duration) *http.Client {
	return &http.Client{
		Transport:     e.transport(e.DialContext),
		Timeout:       timeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// ClientTo is [Egress.Client] that may also reach addr, host:port, even if it is private: the operator named it, for
// example as the real address of a Git host.
func (e *Egress) ClientTo(timeout time.Duration, addr string) *http.Client {
	c := e.Client(timeout)
	c.Transport.(*http.Transport).DialContext = func(ctx context.Context, network, to string) (net.Conn, error) {
		if to == addr {
			return (&net.Dialer{Timeout: e.c.Connect}).DialContext(ctx, network, to)
		}
		return e.DialContext(ctx, network, to)
	}
	return c
}

// PooledClient is [Egress.Client] for repeated requests to the same hosts: it keeps up to perHost idle connections to
// each and resumes TLS sessions.
func (e *Egress) PooledClient(timeout time.Duration, perHost int) *http.Client {
	c := e.Client(timeout)
	t := c.Transport.(*http.Transport)
	t.MaxIdleConnsPerHost, t.MaxIdleConns = perHost, max(t.MaxIdleConns, 4*perHost)
	t.TLSClientConfig.ClientSessionCache = tls.NewLRUClientSessionCache(4 * perHost)
	return c
}

func (e *Egress) transport(dial func(ctx context.Context, network, addr string) (net.Conn, error)) *http.Transport {
	return &http.Transport{
		Proxy:                  nil, // not from the environment: a proxy would connect without our check
		DialContext:            dial,
		TLSClientConfig:        &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: e.roots},
		TLSHandshakeTimeout:    5 * time.Second,
		ForceAttemptHTTP2:      true,
		DisableCompression:     true,
		MaxIdleConns:           512,
		MaxIdleConnsPerHost:    4,
		IdleConnTimeout:        60 * time.Second,
		MaxResponseHeaderBytes: 64 << 10,
		ExpectContinueTimeout:  time.Second,
	}
}

// blockedError hides the address that the dialer checked.
type blockedError struct{ addr string }

func (e *blockedError) Error() string { return "dial " + e.addr + ": " + ErrBlocked.Error() }
func (e *blockedError) Unwrap() error { return ErrBlocked }

// ownAddrs caches the addresses of this machine's interfaces for ten seconds.
type ownAddrs struct {
	mu   sync.Mutex // guards both
	read time.Time
	// share: none, this machine's own addresses
	set map[netip.Addr]bool
}

func (o *ownAddrs) has(a netip.Addr) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.set == nil || time.Since(o.read) > 10*time.Second {
		list, err := net.InterfaceAddrs()
		if err != nil {
			return true // fail closed
		}
		o.set, o.read = make(map[netip.Addr]bool, len(list)), time.Now()
		for _, l := range list {
			if p, err := netip.ParsePrefix(l.String()); err == nil {
				o.set[p.Addr().Unmap().WithZone("")] = true
			}
		}
	}
	return o.set[a]
}
