//go:build !linux

package disk

import "io"

// Spare returns nil: nothing is served here.
func Spare(string, int64) error { return nil }

// Room returns nil.
func Room(string, int64) error { return nil }

// Sparing returns r.
func Sparing(_ string, r io.Reader) io.Reader { return r }
