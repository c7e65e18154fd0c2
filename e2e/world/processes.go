package world

import (
	"bytes"
	"net"
	"os"
	"path/filepath"
	"strings"
)

// podSpec is the path of a remote program's specification, as its processes see it in their pod.
const podSpec = "root/slipway/spec/spec.json"

// Processes returns the pids of this installation's processes with a text in their command line. Sandboxes are
// recognized by the installation's folder, pods by an address of its edge. Pods require root.
func (w *World) Processes(text string) (pids []string) {
	data := []byte(strings.TrimPrefix(w.Dir, filepath.Dir(os.TempDir())) + "/") // the temporary folder may be a separate file system
	_, port, _ := net.SplitHostPort(w.HTTPS)
	all, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, name := range all {
		// A process that has exited has no files.
		line, err := os.ReadFile(name)
		if err != nil || !bytes.Contains(line, []byte(text)) {
			continue
		}
		dir := filepath.Dir(name)
		own := false
		if elsewhere() {
			spec, err := os.ReadFile(filepath.Join(dir, podSpec))
			_, address, found := bytes.Cut(spec, []byte(`"SLIPWAY_URL=`))
			address, _, _ = bytes.Cut(address, []byte{'"'})
			own = err == nil && found && bytes.HasSuffix(address, []byte(":"+port))
		} else {
			mounts, err := os.ReadFile(filepath.Join(dir, "mountinfo"))
			own = err == nil && bytes.Contains(mounts, data)
		}
		if own {
			pids = append(pids, filepath.Base(dir))
		}
	}
	return pids
}
