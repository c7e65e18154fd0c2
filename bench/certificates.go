package main

import (
	"crypto/tls"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"slipway/e2e/world"
)

// certificates measures the memory of many certificates that are loaded because of visits: those of public authorities,
// and the installation's own.
func (b *bench) certificates(w *world.World) error {
	host, id, err := b.tlsSite(w)
	if err != nil {
		return err
	}
	if err := w.Stop(b.ctx); err != nil {
		return err
	}
	hosts, err := seedDomains(b.ctx, w, id, b.certs)
	if err != nil {
		return fmt.Errorf("seed domains: %w", err)
	}
	// No certificate is due for renewal, so the authority isn't contacted.
	w.Flags = append(w.Flags, "--acme-ca", "https://127.0.0.1:1/directory")
	if err := b.warm(w, "of public authorities", host, hosts, `slipway_certificate_lookups_total{result="miss"}`); err != nil {
		return err
	}
	if err := w.Stop(b.ctx); err != nil {
		return err
	}
	w.Flags = w.Flags[:len(w.Flags)-2]
	if _, err := seedSites(b.ctx, w, b.certs, ""); err != nil {
		return fmt.Errorf("seed sites: %w", err)
	}
	for i := range hosts {
		hosts[i] = fmt.Sprintf("seeded-%d.localhost", i)
	}
	return b.warm(w, "of the local authority", host, hosts, "slipway_edge_certificates_minted_total")
}

// warm visits every host twice, after memory was measured with other hosts, and reads from a metric how many second
// visits found no certificate in memory.
func (b *bench) warm(w *world.World, whose, other string, hosts []string, misses string) error {
	if err := w.Start(b.ctx); err != nil {
		return err
	}
	// First the same number of handshakes for one host, to exclude growth that has other causes.
	if err := b.visitAll(w.HTTPS, slices.Repeat([]string{other}, len(hosts))); err != nil {
		return err
	}
	before, err := settled(w)
	if err != nil {
		return err
	}
	if err := b.visitAll(w.HTTPS, hosts); err != nil {
		return err
	}
	after, err := settled(w)
	if err != nil {
		return err
	}
	read, err := b.counter(w, misses)
	if err != nil {
		return err
	}
	if err := b.visitAll(w.HTTPS, hosts); err != nil {
		return err
	}
	again, err := b.counter(w, misses)
	if err != nil {
		return err
	}
	b.add(row{
		what: fmt.Sprintf("memory, %d certificates %s", len(hosts), whose),
		value: fmt.Sprintf("%s more (%.1f kB each); of %d second visits %.0f found none", megabytes(after-before),
			float64(after-before)/float64(len(hosts)), len(hosts), again-read),
		yardstick: "before " + megabytes(before), ratio: fmt.Sprintf("%.2f×", float64(after)/float64(before)), goal: "0 find none",
	})
	return nil
}

// visitAll performs a handshake for every host, several concurrently.
func (b *bench) visitAll(addr string, hosts []string) error {
	var (
		group sync.WaitGroup
		mu    sync.Mutex // guards first
		first error
	)
	for n := range readers {
		group.Go(func() {
			for i := n; i < len(hosts) && b.ctx.Err() == nil; i += readers {
				c := &tls.Config{ServerName: hosts[i], NextProtos: []string{"h2", "http/1.1"}, InsecureSkipVerify: true}
				v, err := visit(addr, c)
				if err == nil {
					err = v.PeerCertificates[0].VerifyHostname(hosts[i])
				}
				if err != nil {
					mu.Lock()
					first = errors.Join(first, fmt.Errorf("handshake for %s: %w", hosts[i], err))
					mu.Unlock()
					return
				}
			}
		})
	}
	group.Wait()
	return errors.Join(first, b.ctx.Err())
}

// counter returns the value of a metric of the program.
func (b *bench) counter(w *world.World, name string) (v float64, err error) {
	a, err := w.Do(b.ctx, world.Request{Method: "GET", URL: "http://" + w.Listen + "/metrics"})
	if err == nil {
		err = a.Err()
	}
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(a.Body)) {
		if rest, ok := strings.CutPrefix(line, name+" "); ok {
			_, err := fmt.Sscan(rest, &v)
			return v, err
		}
	}
	return 0, fmt.Errorf("no metric %s", name)
}
