package seccomp

import "golang.org/x/sys/unix"

const (
	auditArch = 0xc000003e // AUDIT_ARCH_X86_64
	x32       = true
)

// refusedHere lists refused calls that only this architecture has.
var refusedHere = []uint32{
	unix.SYS_USELIB, unix.SYS_MODIFY_LDT, unix.SYS_IOPL, unix.SYS_IOPERM,
	unix.SYS_CREATE_MODULE, unix.SYS_QUERY_MODULE, unix.SYS__SYSCTL,
}
