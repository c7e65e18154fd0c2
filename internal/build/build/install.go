package build

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"slices"

	"slipway/internal/platform/sandbox"
)

// install installs the dependencies, or reuses those of the last build if nothing that determines them has changed.
func (b *build) install(ctx context.Context, network sandbox.Network) error {
	if len(b.Plan.Install) == 0 {
		b.report.Skip("install")
		return nil
	}
	key, err := b.modulesKey()
	if err != nil {
		return err
	}
	kept, err := b.cache.takeKey()
	if err != nil {
		return err
	}
	if key != "" && key == kept {
		if err := b.cache.restore("modules", b.work, RepoDir, b.Plan.Modules, b.uid); err != nil {
			return err
		}
		if len(b.Plan.Scripts) == 0 {
			b.printf("info", "Dependencies are unchanged since the last build: installation skipped")
			b.report.Skip("install")
			return nil
		}
		// The project's own scripts may depend on any of its files, so they always run.
		return b.run(ctx, network, "install", b.Plan.Scripts, nil,
			"Dependencies are unchanged since the last build: only the project's own scripts run")
	}
	return b.suitNode(ctx, network, b.run(ctx, network, "install", b.Plan.Install, nil, ""))
}

// modulesKey returns a key of everything that determines what an installation installs; empty if unknown.
func (b *build) modulesKey() (string, error) {
	if len(b.Plan.Inputs) == 0 || len(b.Plan.Modules) == 0 {
		return "", nil
	}
	root, err := b.checkout()
	if errors.Is(err, errNoCheckout) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("open checkout: %w", err)
	}
	defer root.Close()
	h := sha256.New()
	fmt.Fprintf(h, "%s\n%s\n%q\n%q\n", b.tools.Node, b.tools.Manager, b.Plan.Install, b.Plan.Modules)
	for _, name := range slices.Sorted(slices.Values(b.Plan.Inputs)) {
		f, err := openRegular(root, name)
		if err != nil {
			return "", nil // a link to the outside, not a file, or gone: do a full installation
		}
		fmt.Fprintf(h, "%q\n", name)
		_, err = io.Copy(h, io.LimitReader(f, 64<<20))
		f.Close()
		if err != nil {
			return "", nil
		}
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}
