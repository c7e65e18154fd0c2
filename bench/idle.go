package main

import (
	"crypto/tls"
	"fmt"
	"net"
	"strings"
	"time"

	"slipway/e2e/world"
)

// idle measures what connections that wait for their next request take: TLS and HTTP/2 or
// HTTP/1.1, one answer each, then silence. They come from many addresses of the loopback
// network, because one may hold an eighth of all alone.
func (b *bench) idle(w *world.World, host string) error {
	for _, proto := range []string{"h2", "http/1.1"} {
		// What the connections before left behind would be used again, and not be seen.
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
		var conns []*tls.Conn
		request := "GET /4k.bin HTTP/1.1\r\nHost: " + host + "\r\n\r\n"
		if proto == "h2" {
			request = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00"
		}
		buf := make([]byte, 16<<10)
		for i := range b.idleConns {
			d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 1, byte(i/1000+1))}, Timeout: 10 * time.Second}
			raw, err := d.Dial("tcp", w.HTTPS)
			if err != nil {
				return err
			}
			c := tls.Client(raw, &tls.Config{ServerName: host, InsecureSkipVerify: true, NextProtos: []string{proto}, CurvePreferences: []tls.CurveID{tls.X25519}})
			conns = append(conns, c)
			if _, err := c.Write([]byte(request)); err != nil {
				return err
			}
			if proto == "h2" {
				_, err = c.Read(buf)
			} else {
				err = askRead(c, buf)
			}
			if err != nil {
				return fmt.Errorf("connection %d: %w", i, err)
			}
		}
		after, err := settled(w)
		if err != nil {
			return err
		}
		gone := 0
		for _, c := range conns {
			c.SetReadDeadline(time.Now().Add(time.Millisecond))
			if _, err := c.Read(buf); err != nil && !strings.Contains(err.Error(), "timeout") {
				gone++
			}
			c.Close()
		}
		b.add(row{what: fmt.Sprintf("memory, %d idle connections, TLS + %s", b.idleConns, proto),
			value: fmt.Sprintf("%s more (%.1f kB each); %d were closed", megabytes(after-before), float64(after-before)/float64(b.idleConns), gone), goal: "0 closed"})
	}
	return nil
}
