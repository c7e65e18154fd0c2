package main

import (
	"crypto/tls"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"slipway/e2e/world"
)

// idle measures the memory of idle connections: TLS with HTTP/2 or HTTP/1.1, after one answer. They come from many
// loopback addresses, because one address may only have an eighth of all connections.
func (b *bench) idle(w *world.World) error {
	host, _, err := b.staticSite(w, filepath.Join(w.Dir, "files"))
	if err != nil {
		return err
	}
	for _, proto := range []string{"h2", "http/1.1"} {
		// Restart first: memory left by earlier connections would be reused and hide the growth.
		if err := w.Stop(b.ctx); err != nil {
			return err
		}
		if err := w.Start(b.ctx); err != nil {
			return err
		}
		before, err := settled(w)
		if err != nil {
			return err
		}
		conns := make([]*tls.Conn, b.idleConns)
		errs := make([]error, 8)
		var group sync.WaitGroup
		for part := range errs {
			group.Go(func() {
				for i := part; i < len(conns) && errs[part] == nil; i += len(errs) {
					conns[i], errs[part] = b.openIdle(w, host, proto, i)
				}
			})
		}
		group.Wait()
		for _, err := range errs {
			if err != nil {
				return err
			}
		}
		after, err := settled(w)
		if err != nil {
			return err
		}
		gone, buf := 0, make([]byte, 1024)
		for _, c := range conns {
			c.SetReadDeadline(time.Now().Add(time.Millisecond))
			if _, err := c.Read(buf); err != nil && !strings.Contains(err.Error(), "timeout") {
				gone++
			}
			c.Close()
		}
		each := float64(after-before) / float64(b.idleConns)
		b.add(row{
			what: fmt.Sprintf("memory, %d idle connections, TLS + %s", b.idleConns, proto),
			value: fmt.Sprintf("%s more (%.1f kB each, so %.1f GB for 100000); %d were closed", megabytes(after-before),
				each, each*100_000/1e6, gone),
			goal: "0 closed",
		})
	}
	return nil
}

// openIdle opens the i-th connection and reads one answer.
func (b *bench) openIdle(w *world.World, host, proto string, i int) (*tls.Conn, error) {
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 1, byte(i/1000+1))}, Timeout: 30 * time.Second}
	raw, err := d.DialContext(b.ctx, "tcp", w.HTTPS)
	if err != nil {
		return nil, err
	}
	c := tls.Client(raw, &tls.Config{
		ServerName:         host,
		InsecureSkipVerify: true,
		NextProtos:         []string{proto},
		CurvePreferences:   []tls.CurveID{tls.X25519},
	})
	request := "GET /4k.bin HTTP/1.1\r\nHost: " + host + "\r\n\r\n"
	if proto == "h2" {
		request = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00"
	}
	if _, err := c.Write([]byte(request)); err != nil {
		return nil, fmt.Errorf("connection %d: %w", i, err)
	}
	buf := make([]byte, 16<<10)
	if proto == "h2" {
		_, err = c.Read(buf)
	} else {
		err = askRead(c, buf)
	}
	if err != nil {
		return nil, fmt.Errorf("connection %d: %w", i, err)
	}
	return c, nil
}
