package shell

import (
	"context"
	"net/netip"
	"strings"
	"time"

	"slipway/internal/platform/fault"
	"slipway/internal/web/requestinfo"
)

// How many guesses a window of 15 minutes lets through: for one account from one
// network, from one network, for one account from everywhere, and of second factors.
// The first is for a forgetful owner; the third keeps a swarm slow without letting
// a single stranger lock an owner out. For IPv6 the first two hold for the /64, the /56 and
// the /48 alike, and the third does not concern networks that the owner is signed in from.
const (
	PerAccountHere = 20
	PerNetwork     = 60
	PerAccount     = 200
	PerFactor      = 10
)

// Prove makes sure that it is the user, not somebody at their unlocked machine: who signed
// in a while ago types the password again, into the field "current".
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

// Rightly says of a wrong password what concerns somebody who is signed in.
func Rightly(err error) error {
	if fault.Is(err, fault.Unauthorized) {
		return &fault.Error{Kind: fault.Forbidden, Message: "Wrong password", Code: "wrong_password"}
	}
	return err
}

// Guesses holds a key to count attempts by, and how many are allowed.
type Guesses struct {
	Key   string
	Limit int
}

// Throttle counts a guess and refuses it when it is one too many. Keys are counted one
// after another: those behind the first that refuses are spared.
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
	if !known { // strangers' guesses never lock an owner out where they are signed in
		counts = append(counts, Guesses{Key: "login-all:" + email, Limit: PerAccount})
	}
	return d.Throttle(ctx, counts...)
}

// TypedEmail is an address as it is counted, whatever was typed.
func TypedEmail(s string) string { return Short(254, Clean(strings.ToLower(strings.TrimSpace(s)))) }
