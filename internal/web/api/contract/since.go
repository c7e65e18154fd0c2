package contract

import (
	"strconv"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/platform/lazyregexp"
)

// Since is the start of a period in a query. It is parsed by the handler, so that the error is ours.
type Since string

// Schema returns its schema in the document.
func (Since) Schema(huma.Registry) *huma.Schema { return &huma.Schema{Type: huma.TypeString} }

// longAgo is longer than anything is kept, so that services refuse it. Larger values would overflow.
const longAgo = 4000 * 24 * time.Hour

var back = lazyregexp.New(`^([0-9]{1,6})([mhd])$`)

func (s Since) Parse(now db.Time) (db.Time, error) {
	if s == "" {
		s = "24h"
	}
	if m := back.FindStringSubmatch(string(s)); m != nil {
		n, _ := strconv.Atoi(m[1]) // six digits at most
		unit := map[string]time.Duration{"m": time.Minute, "h": time.Hour, "d": 24 * time.Hour}[m[2]]
		return now.Add(-min(time.Duration(n)*unit, longAgo)), nil
	}
	at, err := time.Parse(time.RFC3339, string(s))
	if err != nil {
		return 0, fault.New(fault.Invalid, "invalid_since", "Invalid since",
			"since must be a timestamp such as 2027-01-31T12:00:00Z or a duration such as 90m, 24h or 30d").Got(string(s))
	}
	return max(db.At(at), now.Add(-longAgo)), nil
}
