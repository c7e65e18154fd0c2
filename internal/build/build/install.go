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

// install brings the dependencies, or takes those of the last build where nothing that
// decides them has changed.
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
		// What the project's own scripts do may depend on any of its files.
		return b.run(ctx, network, "install", b.Plan.Scripts, nil,
			"Dependencies are unchanged since the last build: only the project's own scripts run")
	}
	return b.suitNode(ctx, network, b.run(ctx, network, "install", b.Plan.Install, nil, ""))
}

// modulesKey names everything that decides what an installation brings; empty where
// that can't be told.
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
			return "", nil // a link out, no file, or gone: install as if for the first time
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
