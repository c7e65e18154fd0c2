//go:build linux

package main

import (
	"testing"
)

// Each way to run an upgrade can be asked for by itself, and no two at once.
func TestUpgradeFlags(t *testing.T) {
	t.Parallel()
	ways := [][]string{{"--check", "slipway_1.2.3_linux_amd64.tar.gz"}, {"--undo"}, {"--continue"}, {"--package"}, {"--auto", "patch"}}
	parse := func(args ...string) error {
		t.Helper()
		var c commands
		p, err := c.parser()
		if err != nil {
			t.Fatal(err)
		}
		_, err = p.Parse(append([]string{"upgrade", "--data-dir", t.TempDir()}, args...))
		return err
	}
	for i, way := range ways {
		if err := parse(way...); err != nil {
			t.Errorf("%v: %v", way, err)
		}
		for _, other := range ways[i+1:] {
			if err := parse(append(append([]string{}, way...), other...)...); err == nil {
				t.Errorf("%v and %v are taken together", way, other)
			}
		}
	}
}
