// Package network owns how a sandbox reaches the outside, and how the service reaches into
// it: the network without routes that a command sees, its resolver, what carries its
// connections to the proxy, and the link by which the service connects to its ports.
//
// Both ends are here, the service's and the one inside, because they talk to each other.
// Nothing here imports net/http: the end inside starts as quickly as it can.
package network

import (
	"errors"
	"fmt"
	"net/netip"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"
)

// A command with a way out gets a network that any program can use: names resolve, and
// connections to ports 80 and 443, and others that are named, of what they resolve to work, without a proxy setting.
//
// Nothing is routed. The sandbox's network namespace holds a loopback alone; our resolver
// on it answers every name that the proxy can resolve with an address of fakeNet, which
// is ours on that loopback, and what connects there is carried to the proxy by name
// (carry.go). So the address that a build sees is never the one that is dialed, and the
// proxy checks name and address exactly as it does for everybody. Literal addresses stay
// unreachable.
//
// The namespace and its sockets are made by a stage that runs before bwrap, as the
// site's own uid in a user namespace of its own: binding low ports and giving the
// loopback its network needs capabilities there, and bwrap gives none to anybody. The
// stage drops them and becomes bwrap.

// fakeNet is set aside for benchmarks (RFC 2544): no host of the internet has it.
var fakeNet = netip.MustParsePrefix("198.18.0.0/15")

// Stage is the stage's main: args are the descriptors with their ports, the resolver's
// first, then bwrap's path and argv. It returns only when something failed.
func Stage(args []string) error {
	runtime.LockOSThread() // capabilities are a thread's
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
	// bwrap refuses to start with capabilities that it can't explain.
	if err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0); err != nil {
		return fmt.Errorf("drop capabilities: %w", err)
	}
	var none [2]unix.CapUserData
	if err := unix.Capset(&unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}, &none[0]); err != nil {
		return fmt.Errorf("drop capabilities: %w", err)
	}
	return fmt.Errorf("start bwrap: %w", unix.Exec(args[1], args[2:], []string{"PATH=/usr/bin:/bin"}))
}

// loopback brings lo up and makes every address of fakeNet one of its own: a network of
// a loopback interface is local as a whole.
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
