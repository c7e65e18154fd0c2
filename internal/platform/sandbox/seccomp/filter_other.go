//go:build !amd64 && !arm64

package seccomp

const (
	auditArch = 0 // no filter: Filter refuses
	x32       = false
)

var refusedHere []uint32
