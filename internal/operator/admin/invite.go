package admin

import (
	"context"
	"fmt"
	"io"
	"math"
	"time"

	"slipway/internal/tenant/account"
)

// Invite prints the way in while there is no user yet: a link that works once, the same on every node.
func Invite(ctx context.Context, accounts *account.Accounts, base string, out io.Writer) error {
	empty, err := accounts.Empty(ctx)
	if err != nil || !empty {
		return err
	}
	token, until, err := accounts.FirstLink(ctx, SetupLinkLife)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(
		out,
		"There is no user yet. Create the first one here within %d hours:\n\n    %s/setup/%s\n\n",
		int(math.Ceil(time.Until(until.Time()).Hours())),
		base,
		token,
	)
	return err
}
