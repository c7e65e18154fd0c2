package admin

import (
	"context"
	"io"

	"slipway/internal/edge/certs"
	"slipway/internal/operator/installation"
)

// ExportCA prints the root certificate of the local authority.
func ExportCA(ctx context.Context, s installation.Store, out io.Writer) error {
	d, sealer, err := s.Open(ctx, nil)
	if err != nil {
		return err
	}
	defer d.Close()
	c, err := certs.New(certs.Config{DB: d, Seal: sealer, Log: quiet()})
	if err != nil {
		return err
	}
	pem, err := c.RootPEM(ctx)
	if err != nil {
		return err
	}
	_, err = out.Write(pem)
	return err
}
