package lazyregexp

import "testing"

// In tests, New panics on an invalid expression.
func TestNewCompilesInTests(t *testing.T) {
	t.Parallel()
	defer func() {
		if recover() == nil {
			t.Error("an invalid expression was accepted")
		}
	}()
	New(`(`)
}

func TestCompiledOnFirstUse(t *testing.T) {
	defer func(was bool) { inTest = was }(inTest)
	inTest = false
	bad := New(`(`)
	if good := New(`^a+(b)$`); !good.MatchString("aab") || good.FindStringSubmatch("aab")[1] != "b" {
		t.Error("the expression matches other texts")
	}
	defer func() {
		if recover() == nil {
			t.Error("an invalid expression matched")
		}
	}()
	bad.MatchString("")
}
