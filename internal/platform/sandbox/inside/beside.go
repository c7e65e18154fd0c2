package inside

import (
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// startBeside starts a command that runs beside the sandbox's own. It becomes a child of the
// namespace's init, which reaps it: the command that we become knows nothing of children that
// it has not made, and PHP-FPM reports each as an error. Init ends with the command, and the
// kernel then kills what is left in the namespace.
func startBeside(argv, env []string) error {
	program, err := lookPath(argv[0], env)
	if err != nil {
		return err
	}
	nothing, err := os.Open(os.DevNull)
	if err != nil {
		return err
	}
	defer nothing.Close()
	p, err := os.StartProcess(program, argv, &os.ProcAttr{
		Dir: Root, Env: env, Files: []*os.File{nothing, os.Stdout, os.Stderr},
		Sys: &syscall.SysProcAttr{Cloneflags: unix.CLONE_PARENT, Setsid: true},
	})
	if err != nil {
		return err
	}
	return p.Release()
}
