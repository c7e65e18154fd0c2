package main

import (
	"bytes"
	"io"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// foreground reports whether this process is in the terminal's foreground.
func foreground(tty *os.File) bool {
	group, err := unix.IoctlGetInt(int(tty.Fd()), unix.TIOCGPGRP)
	return err == nil && group == unix.Getpgrp()
}

// takeBack makes this process's group the terminal's foreground again.
func takeBack(tty *os.File) {
	signal.Ignore(syscall.SIGTTOU) // we are in the background at this moment
	unix.IoctlSetPointerInt(int(tty.Fd()), unix.TIOCSPGRP, unix.Getpgrp())
	tty.Close()
}

// log keeps the server's log in a file, and shows it once the screen is written.
type log struct {
	file *os.File

	mu   sync.Mutex // guards the rest
	tail []byte
	to   io.Writer
}

// Write takes what the server says.
func (l *log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.tail = append(l.tail, p...)
	l.tail = l.tail[max(0, len(l.tail)-4096):]
	if l.to != nil {
		l.to.Write(p)
	}
	return l.file.Write(p)
}

// show makes what the server says from now on visible.
func (l *log) show(to io.Writer) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.to = to
}

// last is the server's last line.
func (l *log) last() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	lines := bytes.Split(bytes.TrimSpace(l.tail), []byte("\n"))
	return string(lines[len(lines)-1])
}
