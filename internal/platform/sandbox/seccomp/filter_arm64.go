package seccomp

const (
	auditArch = 0xc00000b7 // AUDIT_ARCH_AARCH64
	x32       = false
)

// refusedHere lists refused calls that only this architecture has.
var refusedHere []uint32
