package certs

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/mholt/acmez/v3/acme"
)

// wellKnown are the names by which CAA records permit authorities (RFC 8659, section 4.2), by
// the domain of their directory. What is not here says so in its directory, or nowhere.
var wellKnown = map[string]string{
	"letsencrypt.org": "letsencrypt.org", "zerossl.com": "sectigo.com", "sectigo.com": "sectigo.com", "pki.goog": "pki.goog",
	"buypass.com": "buypass.com", "buypass.no": "buypass.com", "ssl.com": "ssl.com", "digicert.com": "digicert.com",
}

const (
	permitAsk   = 3 * time.Second
	permitAgain = time.Minute // after a directory that did not answer
)

// Permits finds out by which names CAA records permit authorities. It is safe for
// concurrent use.
type Permits struct {
	known   []string
	unknown []*acme.Client

	mu    sync.Mutex // guards the rest; held while a directory is asked
	said  map[*acme.Client][]string
	retry time.Time
}

// NewPermits takes addresses of ACME directories and a client that reaches them.
func NewPermits(cas []string, out *http.Client) *Permits {
	p := &Permits{said: map[*acme.Client][]string{}}
	for _, address := range cas {
		name := ""
		if u, err := url.Parse(address); err == nil {
			for at := u.Hostname(); at != "" && name == ""; _, at, _ = strings.Cut(at, ".") {
				name = wellKnown[at]
			}
		}
		if name == "" {
			p.unknown = append(p.unknown, &acme.Client{Directory: address, HTTPClient: out, UserAgent: "Slipway/1"})
		} else if !slices.Contains(p.known, name) {
			p.known = append(p.known, name)
		}
	}
	return p
}

// Names returns what is known, and asks the directories of the others once.
func (p *Permits) Names(ctx context.Context) []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := slices.Clone(p.known)
	for _, c := range p.unknown {
		said, asked := p.said[c]
		if !asked && time.Now().After(p.retry) {
			ctx, cancel := context.WithTimeout(ctx, permitAsk)
			d, err := c.GetDirectory(ctx)
			cancel()
			switch {
			case err != nil:
				p.retry = time.Now().Add(permitAgain)
			case d.Meta != nil:
				for _, name := range d.Meta.CAAIdentities {
					if name = strings.ToLower(name); len(name) <= 253 && len(said) < 8 {
						said = append(said, name)
					}
				}
				fallthrough
			default:
				p.said[c] = said
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
