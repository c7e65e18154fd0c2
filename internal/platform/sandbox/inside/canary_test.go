package inside

import (
	"crypto/rand"
	"net"
	"os"
	"path/filepath"
	"testing"
)

// Without a sandbox, the canary's forbidden actions succeed, so a failure inside one shows that the sandbox works.
func TestCanarySingsWithoutASandbox(t *testing.T) {
	t.Parallel()
	lis, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer lis.Close()
	name := "@slipway-test-" + rand.Text()
	abstract, err := net.Listen("unix", name)
	if err != nil {
		t.Fatal(err)
	}
	defer abstract.Close()
	other := filepath.Join(t.TempDir(), "other")
	if err := os.WriteFile(other, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for what, err := range map[string]error{
		"loopback": connects("tcp", lis.Addr().String()), "abstract": connects("unix", name), "other": opens(other),
		"capable": capable(Bait{}), "shares": shares(Bait{Spaces: Spaces()}), "PATH": environs("PATH="),
	} {
		if err != nil {
			t.Errorf("%s: refused on the host: %v", what, err)
		}
	}
}
