package shell

import (
	"context"
	"net/netip"
	"strings"
	"time"

	"slipway/internal/platform/fault"
	"slipway/internal/web/requestinfo"
)

// Limits of guesses per 15 minutes: of one account from one network, from one network, of one account from anywhere,
// and of second factors. The first suits a forgetful owner. The third slows distributed attacks without letting a
// single attacker lock an owner out; it doesn't apply to networks in which the owner is signed in. For IPv6, the first
// two apply to the /64, /56 and /48 alike.
const (
	PerAccountHere = 20
	PerNetwork     = 60
	PerAccount     = 200
	PerFactor      = 10
)

// Prove requires the password in the field "current" unless the session signed in recently, to protect users whose
// unlocked machine others can reach.
func (d *Shell) Prove(ctx context.Context, q *Request) error {
	if q.Session.Fresh() {
		return nil
	}
	if !q.User.Password {
		return fault.New(fault.Forbidden, "sign_in_again", "You signed in a while ago",
			"sign out and in again, then repeat this within 15 minutes")
	}
	if err := d.ThrottlePassword(ctx, q, q.User.Email); err != nil {
		return err
	}
	return At("current", Rightly(d.Accounts.Prove(ctx, q.Session, q.Value("current"))))
}

// Rightly adapts the fault of a wrong password for a signed-in user.
func Rightly(err error) error {
	if fault.Is(err, fault.Unauthorized) {
		return &fault.Error{Kind: fault.Forbidden, Message: "Wrong password", Code: "wrong_password"}
	}
	return err
}

// Guesses is a key for counting attempts, and its limit.
type Guesses struct {
	Key   string
	Limit int
}

// Throttle counts a guess for each key and returns a fault at the first limit exceeded. Later keys aren't counted then.
func (d *Shell) Throttle(ctx context.Context, counts ...Guesses) error {
	for _, c := range counts {
		win, err := d.logins.Take(ctx, c.Key, c.Limit)
		if err != nil {
			return err
		}
		if !win.Allowed {
			wait := time.Duration(win.Wait()) * time.Second
			return &fault.Error{
				Kind:       fault.Limited,
				Message:    "Too many attempts",
				Details:    "try again " + Relative(wait),
				Code:       "too_many_attempts",
				RetryAfter: wait,
			}
		}
	}
	return nil
}

func (d *Shell) ThrottlePassword(ctx context.Context, q *Request, email string) error {
	email = TypedEmail(email)
	networks := requestinfo.Networks(q.Addr)
	var counts []Guesses
	for _, n := range networks {
		counts = append(counts, Guesses{Key: "login-net:" + n, Limit: PerNetwork},
			Guesses{Key: "login-here:" + n + "/" + email, Limit: PerAccountHere})
	}
	known, err := d.Accounts.SignedInFrom(ctx, email, func(a netip.Addr) bool { return requestinfo.Network(a) == networks[0] })
	if err != nil {
		return err
	}
	if !known { // attackers' guesses must not lock an owner out of networks in which they are signed in
		counts = append(counts, Guesses{Key: "login-all:" + email, Limit: PerAccount})
	}
	return d.Throttle(ctx, counts...)
}

// TypedEmail normalizes a typed address for counting.
func TypedEmail(s string) string { return Short(254, Clean(strings.ToLower(strings.TrimSpace(s)))) }
