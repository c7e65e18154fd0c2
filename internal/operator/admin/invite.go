package admin

import (
	"context"
	"fmt"
	"io"

	"slipway/internal/tenant/account"
)

// Invite prints the way in while there is no user yet: a link that works once.
func Invite(ctx context.Context, accounts *account.Accounts, base string, out io.Writer) error {
	empty, err := accounts.Empty(ctx)
	if err != nil || !empty {
		return err
	}
	token, err := accounts.NewSetupLink(ctx, "", SetupLinkLife)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(
		out,
		"There is no user yet. Create the first one here within %d hours:\n\n    %s/setup/%s\n\n",
		int(SetupLinkLife.Hours()),
		base,
		token,
	)
	return err
}
