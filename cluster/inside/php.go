package inside

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"slipway/cluster/pod"
	"slipway/internal/program/runtime"
)

// fpmSocket is the abstract socket that PHP-FPM inherits. The program can't replace it with a file.
const fpmSocket = "@slipway-php"

// listenFPM opens PHP-FPM's socket. Connections wait in its queue until PHP-FPM is up.
func listenFPM(scratch string) (*os.File, error) {
	if err := os.MkdirAll(scratch, 0o700); err != nil {
		return nil, err
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Net: "unix", Name: fpmSocket})
	if err != nil {
		return nil, err
	}
	defer l.Close()
	return l.File()
}

// dialFPM connects to PHP-FPM. It retries while the socket's queue is full, which a Unix socket reports immediately.
func dialFPM() (pod.Half, error) {
	late := time.Now().Add(questionPatience)
	for wait := time.Millisecond; ; wait = min(2*wait, 50*time.Millisecond) {
		c, err := net.DialUnix("unix", nil, &net.UnixAddr{Net: "unix", Name: fpmSocket})
		if err == nil {
			return c, nil
		}
		if !errors.Is(err, unix.EAGAIN) || time.Now().After(late) {
			return nil, err
		}
		time.Sleep(wait)
	}
}

// commandDir holds the link named php to the PHP version chosen for a command.
const commandDir = "/tmp/.slipway-php"

// offerPHP prepends the chosen PHP to the environment's PATH.
func offerPHP(program string, env []string) ([]string, error) {
	if err := os.MkdirAll(commandDir, 0o755); err != nil {
		return nil, err
	}
	if err := os.Symlink(program, filepath.Join(commandDir, "php")); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	out := append([]string{}, env...)
	for i, kv := range out {
		if list, ok := strings.CutPrefix(kv, "PATH="); ok {
			out[i] = "PATH=" + commandDir + ":" + list
		}
	}
	return out, nil
}

// sendTime limits the time to send a file.
const sendTime = 5 * time.Minute

// send responds with a file of one of the program's storage folders.
func send(c net.Conn, length int64, reply func(byte) bool) error {
	_ = c.SetDeadline(time.Now().Add(questionPatience))
	wanted, err := pod.ReadWanted(c, length)
	if err != nil {
		return err
	}
	f, err := openStored(wanted.Folder, wanted.Path)
	if err != nil {
		reply(pod.No)
		return nil
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() {
		reply(pod.No)
		return nil
	}
	is := pod.File{Size: info.Size(), Changed: info.ModTime().UnixNano()}
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		is.Inode = st.Ino
	}
	text, err := json.Marshal(is)
	if err != nil || !reply(pod.Yes) {
		return err
	}
	_ = c.SetDeadline(time.Now().Add(sendTime))
	if _, err := c.Write(append(text, '\n')); err != nil || is == wanted.Have {
		return err
	}
	_, err = io.CopyN(c, f, is.Size)
	return err
}

// openStored opens a file in a folder without following links out of it, and without blocking on special files.
func openStored(folder, name string) (*os.File, error) {
	if !filepath.IsLocal(folder) {
		return nil, fmt.Errorf("%q is no folder of the program", folder)
	}
	root, err := os.OpenRoot(path.Join(runtime.AppDir, folder))
	if err != nil {
		return nil, err
	}
	defer root.Close()
	return root.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
}

// beginEpoch creates the files of an object cache's epoch, with the cache disabled.
func beginEpoch() error {
	for _, dir := range []string{path.Dir(pod.EpochFile), path.Dir(pod.EpochOwn)} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	// Create it at full size, so that it can be changed even if the disk is full.
	return errors.Join(runtime.BumpEpoch(pod.EpochFile, true), os.WriteFile(pod.EpochOwn, []byte("0000000000000000"), 0o600))
}
