package wordpress

import (
	"strings"
	"testing"
)

func TestMinor(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		from, to string
		want     bool
	}{{"6.4.1", "6.4.5", true}, {"6.4", "6.4.1", true}, {"6.4.5", "6.5", false}, {"6.4.5", "7.4.5", false}, {"10.1", "1.1", false}} {
		if got := minor(tt.from, tt.to); got != tt.want {
			t.Errorf("minor(%s, %s) = %v", tt.from, tt.to, got)
		}
	}
}

// Every form of an address is replaced, and the new one by nothing.
func TestAddressPairs(t *testing.T) {
	t.Parallel()
	text := `https://old.test:8443/a http://old.test:8443/b https:\/\/old.test:8443\/c https%3A%2F%2Fold.test%3A8443%2Fd https://new.test/e`
	for _, p := range addressPairs([]string{"https://old.test:8443", "https://new.test"}, "https://new.test") {
		text = strings.ReplaceAll(text, p[0], p[1])
	}
	if want := `https://new.test/a https://new.test/b https:\/\/new.test\/c https%3A%2F%2Fnew.test%2Fd https://new.test/e`; text != want {
		t.Errorf("%s, want %s", text, want)
	}
}
