package memory

import (
	"bufio"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// ForgetStart unmaps pages of the executable that were used only at start: code, tables, names and embedded files. The
// kernel maps sixteen pages around each touched one, so after the start nearly the whole file is resident, twenty
// megabytes more than needed. Pages that are used again are mapped from the page cache without reading; the kernel can
// drop the others.
//
// It touches only read-only mappings, which hold nothing but the file.
func ForgetStart() error {
	self, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return err
	}
	f, err := os.Open("/proc/self/maps")
	if err != nil {
		return err
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		from, to, ok := readOnly(lines.Text(), self)
		if !ok {
			continue
		}
		if _, _, errno := unix.Syscall(unix.SYS_MADVISE, from, to-from, unix.MADV_DONTNEED); errno != 0 {
			return errno
		}
	}
	return lines.Err()
}

// readOnly returns the addresses in a line of /proc/self/maps (proc_pid_maps(5)) if it is a read-only mapping of file.
func readOnly(line, file string) (from, to uintptr, ok bool) {
	fields := strings.Fields(line)
	if len(fields) < 6 || len(fields[1]) != 4 || fields[1][1] == 'w' || !strings.HasSuffix(line, " "+file) {
		return 0, 0, false
	}
	left, right, _ := strings.Cut(fields[0], "-")
	a, err1 := strconv.ParseUint(left, 16, 64)
	b, err2 := strconv.ParseUint(right, 16, 64)
	return uintptr(a), uintptr(b), err1 == nil && err2 == nil && b > a
}
