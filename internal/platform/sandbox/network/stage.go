// Package network owns a sandbox's connections: the network without routes that a command sees, its resolver, the
// forwarding of its connections to the proxy, and the link by which the service connects to its ports.
//
// The package contains both ends, the service's and the one inside, because they talk to each other. It doesn't import
// net/http, so that the end inside starts quickly.
package network

import (
	"errors"
	"fmt"
	"net/netip"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"
)

// A command with network access gets a network that works for any program without proxy settings: names resolve, and
// connections to the resolved addresses work on ports 80 and 443 and others that are configured.
//
// Nothing is routed. The sandbox's network namespace has only a loopback. Our resolver there answers each name that the
// proxy can resolve with an address of fakeNet, which belongs to that loopback. Connections to it are forwarded to the
// proxy by name (carry.go). So the address that a build sees is never the one that is dialed, and the proxy checks name
// and address as for all other users. Literal addresses are unreachable.
//
// A stage creates the namespace and its sockets before bwrap, as the site's uid in its own user namespace: binding low
// ports and configuring the loopback need capabilities there, which bwrap doesn't grant. The stage drops them and
// executes bwrap.

// fakeNet is reserved for benchmarks (RFC 2544) and not used on the internet.
var fakeNet = netip.MustParsePrefix("198.18.0.0/15")

// Stage is the stage's main. args are the descriptors with their ports, the resolver's first, then bwrap's path and
// argv. It returns only on failure.
func Stage(args []string) error {
	runtime.LockOSThread() // capabilities are per thread
	if len(args) < 3 {
		return errors.New("network stage: too few arguments")
	}
	if err := loopback(); err != nil {
		return fmt.Errorf("bring up the loopback: %w", err)
	}
	for i, place := range strings.Split(args[0], ",") {
		var at int
		var port uint16
		if _, err := fmt.Sscanf(place, "%d:%d", &at, &port); err != nil {
			return fmt.Errorf("network stage: %w", err)
		}
		kind, addr := unix.SOCK_STREAM, [4]byte{}
		if i == 0 {
			kind, addr = unix.SOCK_DGRAM, [4]byte{127, 0, 0, 1}
		}
		fd, err := bound(kind, addr, port)
		if err != nil {
			return fmt.Errorf("offer port %d: %w", port, err)
		}
		if err := unix.Dup3(fd, at, 0); err != nil {
			return fmt.Errorf("hand over a socket: %w", err)
		}
	}
	// bwrap refuses to start with unexpected capabilities.
	if err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0); err != nil {
		return fmt.Errorf("drop capabilities: %w", err)
	}
	var none [2]unix.CapUserData
	if err := unix.Capset(&unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}, &none[0]); err != nil {
		return fmt.Errorf("drop capabilities: %w", err)
	}
	return fmt.Errorf("start bwrap: %w", unix.Exec(args[1], args[2:], []string{"PATH=/usr/bin:/bin"}))
}

// loopback brings lo up and assigns it fakeNet: all addresses of a loopback's network are local.
func loopback() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	up, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	up.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	if err := unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, up); err != nil {
		return err
	}
	mask := [4]byte{255, 254, 0, 0}
	first := fakeNet.Addr().As4()
	first[3] = 1
	for _, step := range []struct {
		call  uint
		value []byte
	}{{unix.SIOCSIFADDR, first[:]}, {unix.SIOCSIFNETMASK, mask[:]}} {
		req, err := unix.NewIfreq("lo:1")
		if err != nil {
			return err
		}
		if err := req.SetInet4Addr(step.value); err != nil {
			return err
		}
		if err := unix.IoctlIfreq(fd, step.call, req); err != nil {
			return err
		}
	}
	return nil
}

func bound(kind int, addr [4]byte, port uint16) (int, error) {
	fd, err := unix.Socket(unix.AF_INET, kind|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	if err := unix.Bind(fd, &unix.SockaddrInet4{Addr: addr, Port: int(port)}); err != nil {
		return -1, err
	}
	if kind == unix.SOCK_STREAM {
		return fd, unix.Listen(fd, 256)
	}
	return fd, nil
}
