package certs

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"
	"sync"
	"time"

	"slipway/internal/platform/db"
)

const (
	maxHeld   = 20_000 // certificates in memory, about 2 KiB each
	maxShared = 32     // intermediate certificates that are shared
	handshake = 8 * time.Second
	absent    = 5 * time.Second // how long a name without a certificate isn't looked up again
	pollEvery = time.Second
	pollAll   = 5 * time.Minute
)

// held caches certificates in memory.
type held struct {
	mu sync.RWMutex // guards the rest
	// share: total 20,000 certificates in memory; owner what others leave; edge any other is read from the database again
	at map[string]*entry
	// share: total the names that handshakes wait for, with an order under way; owner those of its orders; edge gone when the name has its certificate, or has none
	wait map[string]chan struct{} // closed when the name's row has changed

	above [maxShared][]byte // intermediate certificates, which many names share
	next  int               // index in above to replace next
}

// entry is a cached certificate, or records until when a name is known to have none.
type entry struct {
	cert    *tls.Certificate
	until   time.Time // end of an absence
	version int64
}

func newHeld() *held { return &held{at: map[string]*entry{}, wait: map[string]chan struct{}{}} }

func (h *held) get(name string) *entry {
	h.mu.RLock()
	defer h.mu.RUnlock()
	return h.at[name]
}

// put stores an entry unless a newer one exists. If the cache is full, it drops any other.
func (h *held) put(name string, e *entry) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if have := h.at[name]; have != nil && have.version > e.version {
		return
	}
	for other := range h.at {
		if len(h.at) < maxHeld {
			break
		}
		delete(h.at, other)
	}
	h.at[name] = e
}

func (h *held) drop(name string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.at, name)
}

// shared returns a copy of an intermediate certificate that all names signed by it share.
func (h *held) shared(der []byte) []byte {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, have := range h.above {
		if bytes.Equal(have, der) {
			return have
		}
	}
	der = bytes.Clone(der)
	h.above[h.next] = der
	h.next = (h.next + 1) % maxShared
	return der
}

// changed wakes handshakes that wait for a name.
func (h *held) changed(name string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if ch := h.wait[name]; ch != nil {
		close(ch)
		delete(h.wait, name)
	}
}

// waiting returns a channel that is closed at the name's next change.
func (h *held) waiting(name string) <-chan struct{} {
	h.mu.Lock()
	defer h.mu.Unlock()
	ch := h.wait[name]
	if ch == nil {
		ch = make(chan struct{})
		h.wait[name] = ch
	}
	return ch
}

// ErrNone is returned if a name should have a certificate but has none yet. The visitor sees a TLS alert.
var ErrNone = errors.New("there is no certificate for this name yet")

// Certificate finds the certificate for a handshake, in memory after the first handshake for the name. name is the name
// to certify, or empty for a host that the caller doesn't serve; known reports that the caller vouches for it, so that
// a certificate may be ordered.
//
// The first visitor of a site's own address waits up to 8 s for the order. Names without a certificate return nil, nil.
// A client that offers only acme-tls/1 gets the proof for one of our orders, or nil, nil, and never a certificate.
func (s *Certs) Certificate(hello *tls.ClientHelloInfo, name string, known bool) (*tls.Certificate, error) {
	host := strings.ToLower(strings.TrimSuffix(hello.ServerName, "."))
	if len(hello.SupportedProtos) == 1 && hello.SupportedProtos[0] == ProtocolTLSALPN {
		if len(s.issuers) == 0 { // no authority validates anything here
			return nil, nil
		}
		return s.proof(hello.Context(), host)
	}
	if name == "" {
		return nil, nil
	}
	if len(s.issuers) == 0 || !orderable(name) {
		l, err := s.local.leaf(hello.Context(), name)
		if err != nil {
			return nil, err
		}
		return l.cert, nil
	}
	// All site addresses share one certificate if the operator has set up the DNS for it.
	if label, ok := strings.CutSuffix(name, "."+s.c.SiteDomain); ok && s.dns() && !strings.Contains(label, ".") {
		if e := s.held.get(s.wildcard()); e != nil && e.cert != nil {
			s.metrics.hits.Inc()
			return e.cert, nil
		}
	}
	if !known {
		return nil, nil
	}
	if e := s.held.get(name); e != nil {
		if e.cert != nil {
			s.metrics.hits.Inc()
			return e.cert, nil
		}
		if time.Now().Before(e.until) {
			return nil, ErrNone
		}
	}
	s.metrics.misses.Inc()
	ctx, cancel := context.WithTimeout(hello.Context(), handshake)
	defer cancel()
	return s.first(ctx, name)
}

// wildcard returns the wildcard name that covers all site addresses.
func (s *Certs) wildcard() string { return "*." + s.c.SiteDomain }

// first answers the first handshake for a name.
func (s *Certs) first(ctx context.Context, name string) (*tls.Certificate, error) {
	// Other handshakes for the name wait for what the first one finds.
	var changed <-chan struct{}
	for asked := false; ; {
		e, err := s.look(ctx, name)
		if err != nil {
			return nil, err
		}
		if e.cert != nil {
			return e.cert, nil
		}
		if time.Now().Before(e.until) {
			return nil, ErrNone
		}
		if !asked && s.isSite(name) {
			asked = true
			a := row{host: name, kind: kindSite}
			found, err := s.wanted(ctx, &a)
			if err != nil {
				return nil, err
			}
			if !found {
				return nil, ErrNone
			}
			if err := s.c.DB.Write(ctx, func(tx *db.Tx) error {
				return s.askTx(ctx, tx, ask{host: name, kind: kindSite, owner: a.owner})
			}); err != nil {
				return nil, err
			}
		}
		if changed == nil { // register before the next look, so that no change is missed
			changed = s.held.waiting(name)
			continue
		}
		select {
		case <-changed:
			changed = nil
		case <-ctx.Done():
			return nil, ErrNone
		}
	}
}

func (s *Certs) isSite(name string) bool { return strings.HasSuffix(name, "."+s.c.SiteDomain) }

// look reads a name's certificate from the database into memory. If the returned entry has no certificate and until is
// zero, the certificate is being ordered.
func (s *Certs) look(ctx context.Context, name string) (*entry, error) {
	done, ok := s.slot(ctx, name)
	if !ok {
		return nil, errors.New("too many names are looked up at once")
	}
	defer done()
	if e := s.held.get(name); e != nil && (e.cert != nil || time.Now().Before(e.until)) {
		return e, nil // another handshake read it meanwhile
	}
	return s.load(ctx, name)
}

func (s *Certs) load(ctx context.Context, name string) (*entry, error) {
	r, err := scan(s.c.DB.QueryRow(ctx, "SELECT "+columns+" FROM certificates WHERE host = $1", name))
	switch {
	case errors.Is(err, sql.ErrNoRows) || err == nil && r.state == gone:
		e := &entry{}
		if !s.isSite(name) { // not requested yet, or not wanted
			e.until = time.Now().Add(time.Second)
		}
		s.held.put(name, e)
		return e, nil
	case err != nil:
		return nil, fmt.Errorf("look up certificate of %s: %w", name, err)
	case r.material == "":
		e := &entry{version: r.version}
		if r.failures > 0 {
			e.until = time.Now().Add(absent)
		}
		s.held.put(name, e)
		return e, nil
	}
	cert, err := s.open(ctx, r.material)
	if damaged(err) {
		return &entry{}, s.repair(ctx, r, err)
	}
	if err != nil {
		return nil, fmt.Errorf("open certificate of %s: %w", name, err)
	}
	e := &entry{cert: s.held.lean(cert), version: r.version}
	s.held.put(name, e)
	return e, nil
}

// lean returns only what a handshake needs: the bytes and the key. The parsed form takes most of a certificate's
// memory.
func (h *held) lean(c *tls.Certificate) *tls.Certificate {
	l := &tls.Certificate{PrivateKey: c.PrivateKey, Certificate: make([][]byte, len(c.Certificate))}
	for i, der := range c.Certificate {
		if i == 0 {
			l.Certificate[i] = bytes.Clone(der) // a copy, so that the longer buffer can be freed
		} else {
			l.Certificate[i] = h.shared(der)
		}
	}
	return l
}

// open reads a certificate and its key from the storage. A missing or mismatched part is errDamaged.
func (s *Certs) open(ctx context.Context, material string) (*tls.Certificate, error) {
	certificate, key, _ := files(material)
	var parts [2][]byte
	for i, name := range []string{certificate, key} {
		part, err := s.storage.Load(ctx, name)
		if errors.Is(err, fs.ErrNotExist) {
			err = fmt.Errorf("%w: %w", errDamaged, err)
		}
		if err != nil {
			return nil, err
		}
		parts[i] = part
	}
	c, err := pair(parts[0], parts[1])
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errDamaged, err)
	}
	return c, nil
}

// repair orders a certificate again if the stored one can't be used.
func (s *Certs) repair(ctx context.Context, r row, cause error) error {
	s.c.Log.ErrorContext(ctx, "stored certificate is damaged; it is ordered again", "host", r.host, "err", cause)
	err := s.c.DB.Write(ctx, func(tx *db.Tx) error {
		n, err := tx.Exec(ctx, `
			UPDATE certificates SET state = 'pending', material = '', issuer = '', not_before = 0, not_after = 0, next_at = $3,
			changed_at = $3
			WHERE host = $1 AND material = $2 AND state <> 'gone'`, r.host, r.material, tx.Now())
		if err != nil || n == 0 { // another node has repaired it
			return err
		}
		nextVersion(tx, r.host)
		if err := s.removeTx(ctx, tx, r.material); err != nil {
			return err
		}
		return s.reportTx(ctx, tx, row{
			host: r.host, kind: r.kind, state: Pending, nextAt: tx.Now(),
			err: "The stored certificate was damaged; another one is being ordered.",
		}, Nothing)
	})
	if err != nil {
		return fmt.Errorf("repair certificate of %s: %w", r.host, err)
	}
	return nil
}

// parse reads what certmagic stored for one certificate.
func parse(stored map[string][]byte, material string) (*tls.Certificate, error) {
	certificate, key, _ := files(material)
	return pair(stored[certificate], stored[key])
}

func pair(chain, private []byte) (*tls.Certificate, error) {
	c, err := tls.X509KeyPair(chain, private)
	if err != nil {
		return nil, err
	}
	if c.Leaf == nil {
		if c.Leaf, err = x509.ParseCertificate(c.Certificate[0]); err != nil {
			return nil, err
		}
	}
	return &c, nil
}

// issuerName returns the name of an authority for users.
func issuerName(leaf *x509.Certificate) string {
	if len(leaf.Issuer.Organization) > 0 && leaf.Issuer.CommonName != "" {
		return leaf.Issuer.Organization[0] + " " + leaf.Issuer.CommonName
	}
	return path.Base(leaf.Issuer.CommonName)
}

// follow applies changes by any node to the certificates in memory: it replaces changed ones, so that their names stay
// cached, and drops withdrawn ones.
func (s *Certs) follow(ctx context.Context) error {
	wake, stop := s.c.DB.Listen(topic)
	defer stop()
	version := int64(-1)
	var all time.Time
	for {
		var err error
		if time.Since(all) > pollAll {
			start := time.Now()
			if err = s.refresh(ctx); err == nil {
				all = start
			}
		}
		if err == nil {
			version, err = s.changes(ctx, version)
		}
		if err != nil && ctx.Err() == nil {
			s.c.Log.ErrorContext(ctx, "changed certificates not read", "err", err)
		}
		if !woken(ctx, wake, pollEvery) {
			return nil
		}
	}
}

// changes applies the rows above a version and returns the highest. The first call only finds the current version,
// since nothing is in memory.
func (s *Certs) changes(ctx context.Context, above int64) (int64, error) {
	if above < 0 {
		err := s.c.DB.QueryRow(ctx, "SELECT n FROM certificate_version WHERE id = 1").Scan(&above)
		if err != nil {
			return -1, fmt.Errorf("read certificate version: %w", err)
		}
		if s.dns() {
			if _, err := s.load(ctx, s.wildcard()); err != nil {
				return -1, err
			}
		}
		return above, s.refresh(ctx)
	}
	rows, err := s.c.DB.Query(ctx, "SELECT "+columns+" FROM certificates WHERE version > $1 ORDER BY version LIMIT 1000", above)
	changed, err := db.Collect(rows, err, scan)
	if err != nil {
		return above, fmt.Errorf("read changed certificates: %w", err)
	}
	for _, r := range changed {
		if err := s.update(ctx, r); err != nil {
			return above, err
		}
		above = r.version
	}
	return above, nil
}

func (s *Certs) update(ctx context.Context, r row) error {
	defer s.held.changed(r.host)
	e := s.held.get(r.host)
	switch {
	case e == nil && r.host == s.wildcard() && r.material != "": // handshakes don't request the wildcard by name
		_, err := s.load(ctx, r.host)
		return err
	case e == nil:
	case r.state == gone || e.cert == nil:
		s.held.drop(r.host)
	case e.version < r.version:
		if _, err := s.load(ctx, r.host); err != nil {
			return err
		}
	}
	return nil
}

// refresh compares all certificates in memory with the database, in case a change was missed.
func (s *Certs) refresh(ctx context.Context) error {
	s.held.mu.RLock()
	names := make([]string, 0, len(s.held.at))
	for name := range s.held.at {
		names = append(names, name)
	}
	s.held.mu.RUnlock()
	for _, name := range names {
		r, err := scan(s.c.DB.QueryRow(ctx, "SELECT "+columns+" FROM certificates WHERE host = $1", name))
		switch {
		case errors.Is(err, sql.ErrNoRows):
			s.held.drop(name)
		case err != nil:
			return fmt.Errorf("compare certificate of %s: %w", name, err)
		default:
			if err := s.update(ctx, r); err != nil {
				return err
			}
		}
	}
	return nil
}
