package doctor

import (
	"strings"
	"testing"

	"slipway/internal/operator/installation"
)

// Doctor reports whether the operator's Redis server is usable, without its password. Package redis tests the checks.
func TestDoctorChecksRedis(t *testing.T) {
	t.Parallel()
	if c := redisServer(t.Context(), installation.Store{}); !c.OK || !strings.Contains(c.Text, "not configured") {
		t.Errorf("without one: %+v", c)
	}
	for address, want := range map[string]string{
		"redis://:hidden@127.0.0.1:1": "refused",
		"redis://127.0.0.1:1":         "no password",
	} {
		if c := redisServer(t.Context(), installation.Store{Redis: address}); c.OK || c.Required || !strings.Contains(c.Text, want) ||
			strings.Contains(c.Text, "hidden") {
			t.Errorf("%s: %+v", address, c)
		}
	}
}
