package world

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Terminal is a user's shell. Its commands run in a pseudo-terminal, one after the other, and share the working
// directory and variables.
type Terminal struct {
	// React receives the output of the running command so far, whenever it has grown, and returns what to type.
	// Optional.
	React func(shown string) (typed string)

	state string // shell commands that restore directory and variables
	env   []string
	dir   string
}

// Terminal returns a terminal with an empty directory as its home and first working directory.
func (w *World) Terminal(home string) *Terminal {
	return &Terminal{state: filepath.Join(home, ".state"), dir: home, env: []string{
		"HOME=" + home, "XDG_CONFIG_HOME=" + filepath.Join(home, ".config"),
		"PATH=" + filepath.Dir(w.Binary) + ":" + os.Getenv("PATH"),
		"TERM=xterm", "NO_COLOR=1", "TZ=UTC", "LANG=C.UTF-8", "NO_PROXY=127.0.0.1", "no_proxy=127.0.0.1",
		"GIT_CONFIG_NOSYSTEM=1", "GIT_CEILING_DIRECTORIES=" + filepath.Dir(home),
	}}
}

// Run runs a command, and returns the displayed output and the exit status.
func (t *Terminal) Run(ctx context.Context, command string) (shown string, status int, err error) {
	ours, theirs, err := openTerminal()
	if err != nil {
		return "", 0, err
	}
	defer ours.Close()
	if _, err := os.Stat(t.state); err == nil {
		command = ". " + t.state + "\n" + command
	}
	// Ctrl-C ends the command, but not the shell.
	command = "trap : INT\n" + command + "\nstatus=$?; { echo \"cd '$PWD'\"; export -p; } > " + t.state + "; exit $status"
	cmd := exec.CommandContext(ctx, "sh", "-c", command)
	cmd.Dir, cmd.Env = t.dir, t.env
	cmd.Stdin, cmd.Stdout, cmd.Stderr = theirs, theirs, theirs
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true, Pdeathsig: syscall.SIGKILL}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	if err := errors.Join(cmd.Start(), theirs.Close()); err != nil {
		return "", 0, err
	}
	var raw strings.Builder
	buffer := make([]byte, 4096)
	for { // reading fails with EIO after all programs have exited
		n, err := ours.Read(buffer)
		if err != nil {
			break
		}
		raw.Write(buffer[:n])
		if t.React == nil {
			continue
		}
		so, err := screen(raw.String())
		if err != nil {
			continue // the rest of an escape sequence is missing
		}
		if typed := t.React(so); typed != "" {
			if _, err := ours.WriteString(typed); err != nil {
				return "", 0, err
			}
		}
	}
	err = cmd.Wait()
	if cause := context.Cause(ctx); cause != nil {
		return raw.String(), 0, cause
	}
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return "", 0, err
	}
	shown, err = screen(raw.String())
	return shown, cmd.ProcessState.ExitCode(), err
}

// openTerminal returns both ends of a new pseudo-terminal.
func openTerminal() (ours, theirs *os.File, err error) {
	if ours, err = os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0); err != nil {
		return nil, nil, err
	}
	raw, err := ours.SyscallConn()
	if err != nil {
		return nil, nil, err
	}
	var n int
	var failed error
	err = raw.Control(func(fd uintptr) {
		failed = unix.IoctlSetPointerInt(int(fd), unix.TIOCSPTLCK, 0)
		if failed == nil {
			n, failed = unix.IoctlGetInt(int(fd), unix.TIOCGPTN)
		}
	})
	if err = errors.Join(err, failed); err == nil {
		theirs, err = os.OpenFile("/dev/pts/"+strconv.Itoa(n), os.O_RDWR|unix.O_NOCTTY, 0)
	}
	if err != nil {
		ours.Close()
		return nil, nil, err
	}
	return ours, theirs, nil
}

// looks matches sequences that only affect appearance: colors (ECMA-48 SGR), character sets (ECMA-35), and xterm's
// modes.
var looks = regexp.MustCompile(`^\x1b(\[[0-9;]*m|[()][0B]|\[\?[0-9;]*[hl])`)

// rest returns the beginning of the text at i.
func rest(text []rune, i int) string { return string(text[i:min(i+16, len(text))]) }

// screen returns what a terminal of any width displays: lines that were redrawn occur once.
func screen(raw string) (string, error) {
	var out strings.Builder
	var line []rune
	at := 0
	text := []rune(raw)
	for i := 0; i < len(text); i++ {
		switch r := text[i]; {
		case r == '\r':
			at = 0
		case r == '\n':
			out.WriteString(strings.TrimRight(string(line), " ") + "\n")
			line, at = nil, 0
		case r == 0x1b && i+2 < len(text) && text[i+1] == '[' && text[i+2] == 'K': // erase to the end of the line (ECMA-48)
			line, i = line[:min(at, len(line))], i+2
		case r == '\b':
			at = max(at-1, 0)
		case r == 0x1b && looks.MatchString(rest(text, i)):
			i += len(looks.FindString(rest(text, i))) - 1 // the sequence is ASCII
		case r < ' ' && r != '\t':
			return "", fmt.Errorf("the terminal was sent %q, which the tests don't know", rest(text, i))
		default:
			if at < len(line) {
				line[at] = r
			} else {
				line = append(line, r)
			}
			at++
		}
	}
	return out.String() + string(line), nil
}
