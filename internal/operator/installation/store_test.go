package installation

import (
	"path/filepath"
	"strings"
	"testing"
)

func TestLockKeepsASecondProcessOut(t *testing.T) {
	t.Parallel()
	s := Store{DataDir: filepath.Join(t.TempDir(), "data")}
	release, err := s.Lock()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Lock(); err == nil || !strings.Contains(err.Error(), "already serves") {
		t.Fatalf("a second lock: %v", err)
	}
	release()
	again, err := s.Lock()
	if err != nil {
		t.Fatal(err)
	}
	again()
}
