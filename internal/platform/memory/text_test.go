package memory

import (
	"bufio"
	"fmt"
	"os"
	"strings"
	"testing"
)

// ForgetStart removes most of the program's file from memory, and the program continues to work.
func TestForgetStart(t *testing.T) {
	before := resident(t)
	if err := ForgetStart(); err != nil {
		t.Fatal(err)
	}
	if after := resident(t); after > before*3/4 {
		t.Errorf("of the program's file %d kB are resident, %d before", after, before)
	}
}

func TestOnlyTheProgramIsForgotten(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]bool{
		"00400000-01bb5000 r-xp 00000000 fe:00 10371427                  /usr/bin/slipway":   true,
		"01bb5000-033bd000 r--p 017b5000 fe:00 10371427                  /usr/bin/slipway":   true,
		"033bd000-038be000 rw-p 02fbd000 fe:00 10371427                  /usr/bin/slipway":   false, // writable: our changes would be lost
		"7f793b486000-7f793b5dc000 r-xp 00026000 fe:00 32                /usr/lib/libc.so.6": false,
		"7f793b486000-7f793b5dc000 r--p 00000000 00:00 0":                                    false,
		"nonsense": false,
	} {
		if _, _, ok := readOnly(line, "/usr/bin/slipway"); ok != want {
			t.Errorf("%s: %v, want %v", line, ok, want)
		}
	}
	if from, to, ok := readOnly("00400000-01bb5000 r-xp 00000000 fe:00 1 /a b", "/a b"); !ok || from != 0x400000 || to != 0x1bb5000 {
		t.Errorf("%x to %x, %v", from, to, ok)
	}
}

// resident returns the resident size of the read-only mappings of the program's file, in kB.
func resident(t *testing.T) (sum int) {
	t.Helper()
	self, err := os.Readlink("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.Open("/proc/self/smaps")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	ours := false
	for s := bufio.NewScanner(f); s.Scan(); {
		if key, _, _ := strings.Cut(s.Text(), " "); !strings.HasSuffix(key, ":") { // first line of a mapping
			_, _, ours = readOnly(s.Text(), self)
		} else if kb := 0; ours && key == "Rss:" {
			if _, err := fmt.Sscanf(s.Text(), "Rss: %d", &kb); err != nil {
				t.Fatal(err)
			}
			sum += kb
		}
	}
	return sum
}
