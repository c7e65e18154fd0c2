package certs

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"time"

	"slipway/internal/platform/text"

	"github.com/mholt/acmez/v3/acme"
)

var (
	errNoDNS       = errors.New("a wildcard needs a DNS challenge, which this installation can't answer")
	errAccount     = errors.New("account")
	errUndelegated = errors.New("the wildcard's _acme-challenge record does not point here")
	errDamaged     = errors.New("it is damaged")
	errNoChallenge = errors.New("the authority offers no challenge that this installation can answer")
)

// note records an authority's error.
func (a *attempt) note(i *issuer, err error) {
	a.causes = append(a.causes, fmt.Errorf("%s: %w", i.host, err))
	base, wild := strings.CutPrefix(a.host, "*.")
	target := ""
	if wild {
		target = i.s.Delegation(base)
	}
	a.errs = append(a.errs, explain(i.host, err, "_acme-challenge."+base, target))
}

// limit records the time before which an authority may not be asked: because of its limits, or, if mine is true,
// because of the same owner's other orders.
func (a *attempt) limit(i *issuer, until time.Time, mine bool) error {
	if a.until.IsZero() || until.Before(a.until) {
		a.until = until
	}
	err := fmt.Errorf("%s: its limits allow the next order at %s", i.host, until.UTC().Format(time.RFC3339))
	a.causes = append(a.causes, err)
	when := until.UTC().Format("2006-01-02 15:04 UTC")
	if mine {
		a.errs = append(
			a.errs,
			fmt.Sprintf(
				"This account has ordered as many certificates from %s as one account may in this period; the next one is ordered at %s.",
				i.host,
				when,
			),
		)
	} else {
		a.errs = append(a.errs, fmt.Sprintf("%s rate-limited the order; the next attempt is possible at %s.", i.host, when))
	}
	return err
}

// words returns the message for the owner about a failed attempt.
func (a *attempt) words(cause error) string {
	if len(a.errs) > 0 {
		return text.Clip(strings.Join(a.errs, " "), 600)
	}
	switch {
	case errors.Is(cause, errNoDNS):
		return "A wildcard needs a DNS challenge, which this installation is not configured for. Add the names you need one by one."
	case errors.Is(cause, context.DeadlineExceeded):
		return "The attempt timed out."
	}
	return "Internal error; the operator's log has the details."
}

// explain turns an authority's error into a message. target is where the challenge record of a wildcard must point, or
// empty.
func explain(host string, err error, where, target string) string {
	p := problem(err)
	switch {
	case errors.Is(err, errNoChallenge):
		return fmt.Sprintf("%s offers no challenge that this installation can answer.", host)
	case p == nil && errors.Is(err, context.DeadlineExceeded):
		return fmt.Sprintf("%s took too long to answer.", host)
	case p == nil:
		return fmt.Sprintf("%s can't be reached or sent an invalid response.", host)
	}
	what := "refused"
	switch p.Type {
	case acme.ProblemTypeExternalAccountRequired:
		return fmt.Sprintf("%s requires an external account, and this installation has none configured. Its operator can fix that.", host)
	case acme.ProblemTypeCAA:
		what = "is not permitted by the CAA records of the name"
	case acme.ProblemTypeDNS:
		what = "found an error in the DNS of the name"
	case acme.ProblemTypeConnection:
		what = "could not reach the name"
	case acme.ProblemTypeTLS:
		what = "could not talk TLS to the name"
	case acme.ProblemTypeUnauthorized, acme.ProblemTypeIncorrectResponse:
		what = "did not find the challenge response at the name"
	case acme.ProblemTypeRejectedIdentifier:
		what = "issues no certificates for the name"
	case acme.ProblemTypeServerInternal:
		what = "has an internal error"
	}
	if errors.Is(err, errAccount) && p.Type != acme.ProblemTypeServerInternal {
		what, target = "does not accept this installation's account, which its operator can fix", ""
	}
	detail := strings.TrimSuffix(strings.Join(strings.Fields(p.Detail), " "), ".")
	if target != "" &&
		(p.Type == acme.ProblemTypeUnauthorized || p.Type == acme.ProblemTypeDNS || p.Type == acme.ProblemTypeIncorrectResponse) {
		detail += fmt.Sprintf(". A wildcard needs a CNAME record at %s that points to %s", where, target)
	}
	if detail == "" {
		return fmt.Sprintf("%s %s.", host, what)
	}
	return fmt.Sprintf("%s %s: %s.", host, what, detail)
}

// overdue returns 21, 14 or 7 if the certificate has reached that many days before its end and no warning was sent yet,
// else 0.
func (a *attempt) overdue(left time.Duration) int {
	if a.state != Active {
		return 0
	}
	for _, days := range []int{7, 14, 21} {
		if left <= time.Duration(days)*24*time.Hour {
			if a.warned == 0 || a.warned > int64(days) {
				return days
			}
			return 0
		}
	}
	return 0
}

// remaining formats a duration for users.
func remaining(d time.Duration) string {
	n, unit := int(d.Hours()/24), "day"
	if n == 0 {
		n, unit = max(int(d.Hours()), 1), "hour"
	}
	if n != 1 {
		unit += "s"
	}
	return fmt.Sprintf("%d %s", n, unit)
}

var saysWhen = regexp.MustCompile(`retry after (\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d)`)

// listener records the Retry-After header of an authority that limits or fails (RFC 8555 §6.6), which the ACME client
// ignores.
type listener struct{ next http.RoundTripper }

func (l *listener) RoundTrip(r *http.Request) (*http.Response, error) {
	res, err := l.next.RoundTrip(r)
	if err != nil || res.StatusCode != http.StatusTooManyRequests && res.StatusCode != http.StatusServiceUnavailable {
		return res, err
	}
	a, header := attemptOf(r.Context()), res.Header.Get("Retry-After")
	now := time.Now()
	until, err := http.ParseTime(header)
	if n, err2 := strconv.ParseInt(header, 10, 32); err2 == nil {
		until, err = now.Add(time.Duration(n)*time.Second), nil
	}
	if a != nil && err == nil && until.After(now) {
		if until.After(now.Add(week)) {
			until = now.Add(week)
		}
		a.told = until
	}
	return res, nil
}

// retryAfter parses the retry time from the text of a rate limit error. It defaults to an hour and is capped at a week.
func retryAfter(detail string) time.Time {
	now := time.Now()
	if m := saysWhen.FindStringSubmatch(detail); m != nil {
		if t, err := time.Parse("2006-01-02 15:04:05",
			strings.Replace(m[1], "T", " ", 1)); err == nil && t.After(now) && t.Before(now.Add(week)) {
			return t
		}
	}
	return now.Add(time.Hour)
}
