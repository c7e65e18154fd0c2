package build

import (
	"context"
	"fmt"
	"slices"

	"slipway/internal/build/toolchain"
	"slipway/internal/platform/fault"
	"slipway/internal/platform/sandbox"
)

// moreTools gets the package managers that commands call beyond the one that installs the dependencies. If one isn't
// available, it logs a warning: the command may never run.
func (b *build) moreTools(ctx context.Context, names []string) error {
	for _, name := range names {
		if name == b.Plan.Manager || name == "npm" { // npm is part of Node.js
			continue
		}
		got, err := b.c.Toolchain.Ready(ctx, toolchain.Want{Node: b.node(), Manager: name, Apart: b.root != nil},
			func(format string, args ...any) { b.printf("info", format, args...) })
		if err != nil {
			if f := fault.As(err); f != nil {
				b.printf("warn", "A command calls %s, which can't be provided: %s", name, f.Message)
				continue
			}
			return fmt.Errorf("prepare %s: %w", name, err)
		}
		b.extra = append(b.extra, got)
		b.tools.Path = appendNew(b.tools.Path, got.Path)
		b.tools.Env = appendNew(b.tools.Env, got.Env)
		for _, bind := range got.Binds {
			if !slices.ContainsFunc(b.tools.Binds, func(have sandbox.Bind) bool { return have.Target == bind.Target }) {
				b.tools.Binds = append(b.tools.Binds, bind)
			}
		}
	}
	return nil
}

// appendNew appends the elements that list lacks.
func appendNew(list, more []string) []string {
	for _, s := range more {
		if !slices.Contains(list, s) {
			list = append(list, s)
		}
	}
	return list
}
