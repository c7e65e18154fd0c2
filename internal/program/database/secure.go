package database

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"time"
)

// Programs speak to their socket without TLS, which never leaves the machine. On the way to a server that is asked for TLS, the
// handshake of MariaDB's protocol (mariadb.com/kb: Connection Phase) gets one packet more, so the numbers of those that follow it
// are one higher at the server, until it has let the client in. From then on both count anew for each command, and bytes are
// carried as they are.

const (
	capProtocol41 = 1 << 9
	capSSL        = 1 << 11

	sslRequest       = 32       // bytes of the client's first packet that come before TLS: what it can do, without its name
	handshakeLimit   = 64 << 10 // bytes of one packet until the client is in
	handshakeRounds  = 20       // packets of the server until the client is in: methods ask once or twice
	handshakeTimeout = 20 * time.Second
)

var errHandshake = errors.New("the handshake is not MariaDB's")

// secure takes a client that speaks plain to a server over TLS, and returns the connection once the client is in or refused.
func secure(ctx context.Context, client, server net.Conn, config *tls.Config) (net.Conn, error) {
	deadline := time.Now().Add(handshakeTimeout)
	if err := errors.Join(client.SetDeadline(deadline), server.SetDeadline(deadline)); err != nil {
		return nil, err
	}
	greeting, err := readPacket(server)
	if err != nil {
		return nil, err
	}
	if greeting.refuses() {
		return nil, cmp.Or(greeting.write(client, 0), errors.New("the database server lets nobody in"))
	}
	able := greeting.capabilities()
	if able == nil || binary.LittleEndian.Uint16(able)&capSSL == 0 {
		refuse(client, 1053, "The database server is not available")
		return nil, errors.New("the database server has no TLS")
	}
	binary.LittleEndian.PutUint16(able, binary.LittleEndian.Uint16(able)&^capSSL) // the client isn't to ask for it
	if err := greeting.write(client, 0); err != nil {
		return nil, err
	}
	hello, err := readPacket(client)
	if err != nil {
		return nil, err
	}
	if len(hello.body) < sslRequest || binary.LittleEndian.Uint32(hello.body)&(capProtocol41|capSSL) != capProtocol41 {
		return nil, errHandshake
	}
	binary.LittleEndian.PutUint32(hello.body, binary.LittleEndian.Uint32(hello.body)|capSSL)
	if err := (packet{hello.number, hello.body[:sslRequest]}).write(server, 0); err != nil {
		return nil, err
	}
	over := tls.Client(server, config)
	if err := over.HandshakeContext(ctx); err != nil {
		return nil, fmt.Errorf("TLS of the database server: %w", err)
	}
	if err := hello.write(over, 1); err != nil {
		return nil, err
	}
	for range handshakeRounds {
		p, err := readPacket(over)
		if err != nil {
			return nil, err
		}
		if err := p.write(client, -1); err != nil {
			return nil, err
		}
		if p.admits() || p.refuses() {
			return over, errors.Join(client.SetDeadline(time.Time{}), over.SetDeadline(time.Time{}))
		}
		if p.goesOn() {
			continue
		}
		if p, err = readPacket(client); err != nil {
			return nil, err
		}
		if err := p.write(over, 1); err != nil {
			return nil, err
		}
	}
	return nil, errHandshake
}

// packet is one of MariaDB's protocol.
type packet struct {
	number byte // in its exchange, from 0
	body   []byte
}

// readPacket reads no byte more than the packet: what follows may be TLS.
func readPacket(from io.Reader) (packet, error) {
	var head [4]byte
	if _, err := io.ReadFull(from, head[:]); err != nil {
		return packet{}, err
	}
	size := int(head[0]) | int(head[1])<<8 | int(head[2])<<16
	if size == 0 || size > handshakeLimit {
		return packet{}, errHandshake
	}
	p := packet{head[3], make([]byte, size)}
	_, err := io.ReadFull(from, p.body)
	return p, err
}

// write sends the packet with its number shifted.
func (p packet) write(to io.Writer, shift int) error {
	n := len(p.body)
	_, err := to.Write(append([]byte{byte(n), byte(n >> 8), byte(n >> 16), byte(int(p.number) + shift)}, p.body...))
	return err
}

func (p packet) admits() bool  { return p.body[0] == 0 }
func (p packet) refuses() bool { return p.body[0] == 0xff }

// goesOn reports whether the server says that it knows the password already, and more in its next packet
// (caching_sha2_password).
func (p packet) goesOn() bool { return len(p.body) == 2 && p.body[0] == 1 && p.body[1] == 3 }

// capabilities are the two bytes of a greeting that say whether the server has TLS; nil: it is no greeting.
func (p packet) capabilities() []byte {
	if p.body[0] != 10 { // the protocol's version
		return nil
	}
	for i, b := range p.body[1:] {
		if b != 0 { // the server's version
			continue
		}
		at := 1 + i + 1 + 4 + 8 + 1 // the connection's number, eight random bytes, a zero
		if at+2 > len(p.body) {
			return nil
		}
		return p.body[at : at+2]
	}
	return nil
}
