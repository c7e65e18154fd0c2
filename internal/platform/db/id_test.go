package db

import (
	"testing"
	"time"
)

// An ID sorts after FirstID of its moment and before FirstID of a later moment.
func TestFirstID(t *testing.T) {
	t.Parallel()
	before := Now()
	id := NewID("x")
	if first := FirstID("x", before); first > id {
		t.Errorf("%s sorts before the first id of its moment, %s", id, first)
	}
	if later := FirstID("x", before.Add(time.Hour)); later <= id || len(later) != len(id) {
		t.Errorf("%s sorts behind the first id of an hour later, %s", id, later)
	}
	if FirstID("x", -5) != FirstID("x", 0) {
		t.Error("a moment before 1970 has another first id")
	}
}
