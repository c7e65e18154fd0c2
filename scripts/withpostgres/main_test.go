package main

import (
	"slices"
	"testing"
)

func TestNewestByVersion(t *testing.T) {
	t.Parallel()
	found := []string{
		"/usr/lib/postgresql/10/bin/postgres",
		"/usr/lib/postgresql/17/bin/postgres",
		"/usr/lib/postgresql/9.6/bin/postgres",
		"/usr/lib/postgresql/odd/bin/postgres",
	}
	if got := slices.MaxFunc(found, byVersion); got != found[1] {
		t.Errorf("newest is %s", got)
	}
}
