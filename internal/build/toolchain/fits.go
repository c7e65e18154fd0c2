package toolchain

import (
	"strconv"
	"time"
)

// Fits reports whether a version of Node.js, as "24.1.0", serves a wish as [Want.Node] has it. "latest" is
// served by any: what there is, is the latest that there is.
func Fits(want, node string) bool {
	v, ok := parseVersion(node)
	if !ok || want == "" {
		return ok
	}
	w, ok := parseNode(want)
	if !ok {
		return false
	}
	if w.lts > 0 {
		line, ok := ltsLine(w.lts, time.Now())
		if !ok {
			return false
		}
		w.set, _ = parseRange(strconv.FormatInt(line, 10))
	}
	return w.newest || w.set.has(v)
}
