package certs

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/caddyserver/certmagic"
	"github.com/mholt/acmez/v3/acme"
)

// issuer is one ACME authority, as a certmagic issuer. It replaces certmagic's ACMEIssuer because owners must read what
// the authority found, because every validation must be counted, and because only the edge answers challenges (ADR
// 0006).
type issuer struct {
	s      *Certs
	url    string
	key    string // identifies the authority in the storage and the ledger
	host   string // name shown to users
	first  bool   // preferred authority
	client *acme.Client

	mu      sync.Mutex // guards account; held while the account is read or created
	account *acme.Account
}

func newIssuer(s *Certs, u *url.URL, first bool) *issuer {
	client := *s.c.Out
	client.Transport = &listener{client.Transport}
	key := strings.Trim(strings.ReplaceAll(u.Host+u.Path, "/", "-"), "-")
	return &issuer{
		s: s, url: u.String(), key: certmagic.StorageKeys.Safe(key), host: u.Hostname(), first: first,
		client: &acme.Client{
			Directory:    u.String(),
			HTTPClient:   &client,
			UserAgent:    "Slipway/1",
			PollInterval: 250 * time.Millisecond,
			PollTimeout:  time.Minute,
		},
	}
}

// IssuerKey identifies the authority in the storage.
func (i *issuer) IssuerKey() string { return i.key }

var errSkipped = errors.New("the first authority found the error in the name itself")

// Issue gets one certificate. certmagic calls it during an attempt.
func (i *issuer) Issue(ctx context.Context, csr *x509.CertificateRequest) (*certmagic.IssuedCertificate, error) {
	a := attemptOf(ctx)
	if a == nil {
		return nil, errors.New("issue: not within an attempt")
	}
	// If the proof wasn't found, another authority won't find it either. After three failures it is worth a try, since
	// networks differ.
	if a.invalid && !i.first && a.failures < 3 {
		return nil, errSkipped
	}
	kind, until, mine, err := i.s.allowed(ctx, i, a)
	if err != nil {
		return nil, err
	}
	if !until.IsZero() {
		return nil, a.limit(i, until, mine)
	}
	a.asked++
	a.told = time.Time{}
	chain, err := i.issue(ctx, a, csr)
	if err != nil {
		until := a.told
		if e := problem(err); e != nil && e.Type == acme.ProblemTypeRateLimited && until.IsZero() {
			until = retryAfter(e.Detail)
		}
		if !until.IsZero() {
			a.asked-- // the authority refused to be contacted
			return nil, a.limit(i, until, false)
		}
		a.note(i, err)
		return nil, err
	}
	if err := i.s.count(ctx, i, a, kind); err != nil {
		i.s.c.Log.ErrorContext(ctx, "certificate not counted", "host", a.host, "err", err)
	}
	return &certmagic.IssuedCertificate{Certificate: chain.ChainPEM, Metadata: map[string]string{"url": chain.URL, "ca": i.url}}, nil
}

// issue orders a certificate for one name (RFC 8555 §7.4).
func (i *issuer) issue(ctx context.Context, a *attempt, csr *x509.CertificateRequest) (acme.Certificate, error) {
	var none acme.Certificate
	account, order, err := i.order(ctx, a)
	if err != nil {
		return none, err
	}
	if err := i.s.count(ctx, i, a, ledgerOrder); err != nil {
		return none, fmt.Errorf("count order: %w", err)
	}
	for _, address := range order.Authorizations {
		authz, err := i.client.GetAuthorization(ctx, account, address)
		if err != nil {
			return none, fmt.Errorf("get authorization: %w", err)
		}
		if authz.Status == acme.StatusValid {
			continue // already proven a short while ago
		}
		if err := i.prove(ctx, a, account, authz); err != nil {
			return none, err
		}
	}
	if order, err = i.client.FinalizeOrder(ctx, account, order, csr.Raw); err != nil {
		return none, fmt.Errorf("finalize order: %w", err)
	}
	chains, err := i.client.GetCertificateChain(ctx, account, order.Certificate)
	if err != nil {
		return none, fmt.Errorf("get certificate: %w", err)
	}
	if len(chains) == 0 {
		return none, errors.New("get certificate: there is none")
	}
	return chains[0], nil
}

// order places an order. If limits refuse a renewal, it is placed again as a replacement (RFC 9773 §5), which
// authorities exempt; not on the first try, because some authorities fail on replacements whose validation fails. If
// the authority no longer knows the account, order registers a new one.
func (i *issuer) order(ctx context.Context, a *attempt) (acme.Account, acme.Order, error) {
	order := acme.Order{Identifiers: []acme.Identifier{{Type: "dns", Value: a.host}}}
	for try := 1; ; try++ {
		account, err := i.accountTo(ctx)
		if err != nil {
			return acme.Account{}, order, err
		}
		placed, err := i.client.NewOrder(ctx, account, order)
		if err == nil {
			return account, placed, nil
		}
		err = fmt.Errorf("place order: %w", err)
		p := problem(err)
		switch {
		case p == nil || try == 3:
		case p.Type == acme.ProblemTypeAccountDoesNotExist:
			if err := i.forget(ctx); err != nil {
				return acme.Account{}, order, err
			}
			continue
		case p.Type == acme.ProblemTypeRateLimited && order.Replaces == "":
			if id := i.replaces(ctx, a); id != "" {
				again := order
				again.Replaces = id
				if placed, err := i.client.NewOrder(ctx, account, again); err == nil {
					return account, placed, nil
				}
			}
		}
		return acme.Account{}, order, err
	}
}

// replaces returns the ARI id of the certificate that an order replaces, or "" if another authority issued it or
// doesn't support replacements.
func (i *issuer) replaces(ctx context.Context, a *attempt) string {
	if !i.issued(a) {
		return ""
	}
	d, err := i.client.GetDirectory(ctx)
	if err != nil || d.RenewalInfo == "" {
		return ""
	}
	id, err := acme.ARIUniqueIdentifier(a.previous)
	if err != nil {
		return ""
	}
	return id
}

// issued reports whether this authority issued the certificate to renew.
func (i *issuer) issued(a *attempt) bool {
	return a.previous != nil && strings.Contains(a.material, "/"+i.key+"/")
}

// prove answers one challenge of an authorization and waits for the result. Attempts alternate between challenge types,
// so that one that can't work here doesn't block the other. Each costs one validation.
func (i *issuer) prove(ctx context.Context, a *attempt, account acme.Account, authz acme.Authorization) error {
	var offered []acme.Challenge
	for _, kind := range i.s.kinds(ctx, a.row, authz.Wildcard || strings.HasPrefix(a.host, "*.")) {
		for _, c := range authz.Challenges {
			if c.Type == kind && c.Token != "" {
				offered = append(offered, c)
			}
		}
	}
	if len(offered) == 0 {
		return errNoChallenge
	}
	c := offered[int(a.failures)%len(offered)]
	withdraw, err := i.s.present(ctx, c)
	if err != nil {
		return err
	}
	defer withdraw()
	if _, err := i.client.InitiateChallenge(ctx, account, c); err != nil {
		return fmt.Errorf("begin %s: %w", c.Type, err)
	}
	if _, err := i.client.PollAuthorization(ctx, account, authz); err != nil {
		if problem(err) != nil && ctx.Err() == nil {
			a.invalid = true
			if err := i.s.count(ctx, i, a, ledgerInvalid); err != nil {
				i.s.c.Log.ErrorContext(ctx, "failed validation not counted", "host", a.host, "err", err)
			}
		}
		return fmt.Errorf("prove by %s: %w", c.Type, err)
	}
	return nil
}

// kinds returns the challenge types that work here, in order of preference. Wildcards are proven by DNS only (RFC 8555
// §7.1.3, CA/B Forum BR 3.2.2.4). A custom host with a delegated proof tries DNS first: its visitors may still go
// elsewhere.
func (s *Certs) kinds(ctx context.Context, r row, wildcard bool) []string {
	var out []string
	if s.dns() && (wildcard || r.kind == kindCustom && s.provable(ctx, r.host)) {
		out = append(out, acme.ChallengeTypeDNS01)
	}
	if !wildcard && s.c.HTTP01 {
		out = append(out, acme.ChallengeTypeHTTP01)
	}
	if !wildcard && s.c.TLSALPN01 {
		out = append(out, acme.ChallengeTypeTLSALPN01)
	}
	return slices.Clip(out)
}

// provable reports whether an authority would find the DNS proof of a custom host.
func (s *Certs) provable(ctx context.Context, host string) bool {
	if s.c.Domains == nil {
		return false
	}
	ok, err := s.c.Domains.Delegated(ctx, host)
	return err == nil && ok
}

func problem(err error) *acme.Problem {
	var p acme.Problem
	if errors.As(err, &p) {
		return &p
	}
	return nil
}
