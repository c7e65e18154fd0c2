//go:build !amd64 && !arm64

package sandbox

const (
	auditArch = 0 // no filter: New refuses
	x32       = false
)

var refusedHere []uint32
