package main

import (
	"fmt"
	"io"
	"net"
	"net/netip"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"

	"golang.org/x/net/dns/dnsmessage"
)

// A cluster in its own namespaces has no network access except to the npm registry, for tests that build real projects.
// Its node has an address and a DNS server for the registry, and forwards connections through a socket in the cluster's
// folder, whose other end is outside. npm checks the registry's certificate, so the connection is end-to-end.
const (
	registrySocket  = "registry.sock"
	registryAddress = "203.0.113.20" // reserved for documentation (RFC 5737), so network policies treat it as public
)

// registryName is the host of the registry that this machine's npm is configured to use.
var registryName = sync.OnceValues(func() (string, error) {
	out, err := exec.Command("npm", "config", "get", "registry").Output()
	if err != nil {
		return "", fmt.Errorf("npm config get registry: %w", err)
	}
	u, err := url.Parse(strings.TrimSpace(string(out)))
	if err != nil || u.Scheme != "https" || u.Hostname() == "" || u.Port() != "" {
		return "", fmt.Errorf("the npm registry is %q: one at port 443 is needed", strings.TrimSpace(string(out)))
	}
	return strings.ToLower(u.Hostname()), nil
})

// leadToRegistry forwards connections of the cluster's socket to the registry, outside the namespaces.
func leadToRegistry(dir string) error {
	name, err := registryName()
	if err != nil {
		return err
	}
	l, err := net.Listen("unix", filepath.Join(dir, registrySocket))
	if err == nil {
		go lead(l, "tcp", name+":443")
	}
	return err
}

// serveRegistry adds the registry's address and name to the cluster's node.
func (n *starting) serveRegistry() error {
	name, err := registryName()
	if err != nil {
		return err
	}
	// Not an address of an interface: programs have no access to the node's own addresses.
	if err := n.addresses("route add local " + registryAddress + "/32 dev lo"); err != nil {
		return err
	}
	l, err := net.Listen("tcp", registryAddress+":443")
	if err != nil {
		return err
	}
	go lead(l, "unix", filepath.Join(n.dir, registrySocket))
	names, err := net.ListenPacket("udp", n.address+":53")
	if err != nil {
		return err
	}
	go serveNames(names, name)
	return nil
}

// lead forwards each connection to an address.
func lead(l net.Listener, network, address string) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer c.Close()
			to, err := net.Dial(network, address)
			if err != nil {
				fmt.Println("cluster: the npm registry:", err)
				return
			}
			defer to.Close()
			var both sync.WaitGroup
			for from, into := range map[net.Conn]net.Conn{c: to, to: c} {
				both.Go(func() {
					_, _ = io.Copy(into, from)
					_ = into.(interface{ CloseWrite() error }).CloseWrite()
				})
			}
			both.Wait()
		}()
	}
}

// serveNames is a DNS server that knows only the registry's name.
func serveNames(c net.PacketConn, name string) {
	for b := make([]byte, 1500); ; {
		size, from, err := c.ReadFrom(b)
		if err != nil {
			return
		}
		var m dnsmessage.Message
		if m.Unpack(b[:size]) != nil || len(m.Questions) != 1 {
			continue
		}
		q := m.Questions[0]
		m.Header = dnsmessage.Header{ID: m.ID, Response: true, RecursionDesired: m.RecursionDesired, RecursionAvailable: true}
		m.Answers, m.Authorities, m.Additionals = nil, nil, nil
		switch {
		case strings.TrimSuffix(strings.ToLower(q.Name.String()), ".") != name:
			m.RCode = dnsmessage.RCodeNameError
		case q.Type == dnsmessage.TypeA:
			m.Answers = []dnsmessage.Resource{{
				Header: dnsmessage.ResourceHeader{Name: q.Name, Class: q.Class, TTL: 60},
				Body:   &dnsmessage.AResource{A: netip.MustParseAddr(registryAddress).As4()},
			}}
		}
		if text, err := m.Pack(); err == nil {
			_, _ = c.WriteTo(text, from)
		}
	}
}

// npmSettings adds npm's global settings on this machine, such as additional root certificates.
func (c contents) npmSettings() error {
	out, err := exec.Command("npm", "config", "get", "globalconfig").Output()
	if name := strings.TrimSpace(string(out)); err == nil && filepath.IsAbs(name) {
		if _, err := os.Stat(name); err == nil {
			c[strings.TrimPrefix(name, "/")] = name
		}
	}
	return err
}
