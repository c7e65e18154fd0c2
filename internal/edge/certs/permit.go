package certs

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"slipway/internal/platform/db"
)

// wellKnown lists the names that permit an authority in CAA records (RFC 8659 §4.2), by the domain of its directory.
// Other authorities list theirs in the directory.
var wellKnown = map[string]string{
	"letsencrypt.org": "letsencrypt.org", "zerossl.com": "sectigo.com", "sectigo.com": "sectigo.com", "pki.goog": "pki.goog",
	"buypass.com": "buypass.com", "buypass.no": "buypass.com", "ssl.com": "ssl.com", "digicert.com": "digicert.com",
}

const (
	permitAsk   = 3 * time.Second
	permitAgain = time.Minute // wait after a directory that didn't answer
)

// Permits tells what DNS records a site's name needs so that the authorities certify it. It is safe for concurrent use.
type Permits struct {
	out     *http.Client
	zone    string // zone for the challenges of wildcards; empty if none
	known   []string
	unknown []string // directories of authorities that aren't in wellKnown

	mu sync.Mutex // guards said and retry; held while a directory is read
	// share: none, the operator's: one for each certificate authority
	said  map[string][]string
	retry time.Time
}

// NewPermits takes the addresses of ACME directories, a client that reaches them, and the zone for the challenges of
// wildcards (empty if none).
func NewPermits(cas []string, out *http.Client, zone string) *Permits {
	p := &Permits{out: out, zone: zone, said: map[string][]string{}}
	for _, address := range cas {
		name := ""
		if u, err := url.Parse(address); err == nil {
			for at := u.Hostname(); at != "" && name == ""; _, at, _ = strings.Cut(at, ".") {
				name = wellKnown[at]
			}
		}
		if name == "" {
			p.unknown = append(p.unknown, address)
		} else if !slices.Contains(p.known, name) {
			p.known = append(p.known, name)
		}
	}
	return p
}

// Delegation returns where the challenge of a wildcard must point, or "" if wildcards can't have a certificate.
func (p *Permits) Delegation(name string) string {
	if p.zone == "" {
		return ""
	}
	return Delegation(p.zone, name)
}

// RetryTx makes the next order for a custom host due now.
func (p *Permits) RetryTx(ctx context.Context, tx *db.Tx, host string) error {
	return RetryTx(ctx, tx, host)
}

// CAs returns the names that permit the authorities in CAA records (RFC 8659). Directories of unknown authorities are
// read once.
func (p *Permits) CAs(ctx context.Context) []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := slices.Clone(p.known)
	for _, address := range p.unknown {
		said, asked := p.said[address]
		if !asked && time.Now().After(p.retry) {
			var err error
			if said, err = p.ask(ctx, address); err != nil {
				p.retry = time.Now().Add(permitAgain)
			} else {
				p.said[address] = said
			}
		}
		for _, name := range said {
			if !slices.Contains(out, name) {
				out = append(out, name)
			}
		}
	}
	return out
}

// ask reads a directory. It uses its own request because the client for orders allows only one at a time, and one that
// hangs would block everybody who views a domain.
func (p *Permits) ask(ctx context.Context, address string) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, permitAsk)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, err
	}
	res, err := p.out.Do(r)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	var d struct {
		Meta struct {
			CAA []string `json:"caaIdentities"`
		} `json:"meta"`
	}
	if res.StatusCode != http.StatusOK {
		return nil, errors.New(res.Status)
	}
	if err := json.NewDecoder(io.LimitReader(res.Body, 64<<10)).Decode(&d); err != nil {
		return nil, err
	}
	var said []string
	for _, name := range d.Meta.CAA[:min(len(d.Meta.CAA), 8)] {
		if len(name) <= 253 {
			said = append(said, strings.ToLower(name))
		}
	}
	return said, nil
}
