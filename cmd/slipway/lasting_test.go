//go:build linux

package main

import "testing"

// The service is run without kong, whose model would stay in memory with it; all else is run by kong.
func TestLasting(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]bool{"serve": true, "version": false, "doctor": false} {
		var c commands
		p, err := c.parser()
		if err != nil {
			t.Fatal(err)
		}
		cmd, err := p.Parse([]string{line})
		if err != nil {
			t.Fatal(err)
		}
		if got := c.lasting(cmd.Command()) != nil; got != want {
			t.Errorf("%s: %v, want %v", line, got, want)
		}
	}
}
