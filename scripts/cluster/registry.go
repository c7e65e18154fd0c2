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

// Of the world a cluster in namespaces of its own reaches the npm registry alone, for the real projects that stories build: at an
// address that its node has, by a name that its node's DNS server knows, through a socket in the cluster's folder, whose other end is
// outside. What is sent is between npm and the registry, whose certificate npm checks.
const (
	registrySocket  = "registry.sock"
	registryAddress = "203.0.113.20" // for documentation (RFC 5737), and public to network policies
)

// registryName is the host of the registry that npm of this machine is told to use.
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

// leadToRegistry leads what is connected to the cluster's socket to the registry, outside of its namespaces.
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

// serveRegistry gives the cluster's node the registry's address and name.
func (n *starting) serveRegistry() error {
	name, err := registryName()
	if err != nil {
		return err
	}
	// Not as an address of an interface: none of the node's own is open to programs.
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

// lead leads each connection to an address.
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

// serveNames answers for one name, the registry's, and that there is no other one.
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

// npmSettings adds the settings that npm of this machine has for all users: further roots that it trusts, for one.
func (c contents) npmSettings() error {
	out, err := exec.Command("npm", "config", "get", "globalconfig").Output()
	if name := strings.TrimSpace(string(out)); err == nil && filepath.IsAbs(name) {
		if _, err := os.Stat(name); err == nil {
			c[strings.TrimPrefix(name, "/")] = name
		}
	}
	return err
}
