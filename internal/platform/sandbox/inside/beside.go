package inside

import (
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// startBeside starts a command next to the sandbox's own. The namespace's init becomes its parent and reaps it: the
// main command doesn't expect children that it didn't start (PHP-FPM logs each as an error). When the main command
// ends, init ends, and the kernel kills what is left in the namespace.
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
