package admin

import (
	"context"
	"errors"
	"fmt"
	"io"

	"slipway/internal/operator/installation"
	"slipway/internal/platform/text"
)

// CompactDatabase rewrites a SQLite database without its free space.
func CompactDatabase(ctx context.Context, s installation.Store, out io.Writer) error {
	if s.Database != "" {
		return errors.New("only SQLite needs this: PostgreSQL frees its space by itself")
	}
	unlock, err := s.Lock()
	if err != nil {
		return err
	}
	defer unlock()
	d, err := s.OpenDatabase(ctx, nil)
	if err != nil {
		return err
	}
	defer d.Close()
	freed, err := d.Compact(ctx)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "%s freed\n", text.Size(freed))
	return nil
}
